"""Runs vLLM's command with forked engines and workers, as on a GPU.

vLLM forks them unless a GPU is already in use, but its CPU platform starts each as a new
interpreter, which imports all modules again. VLLM_WORKER_MULTIPROC_METHOD=spawn keeps that.
"""

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def keep_method() -> None:
    """Let the CPU platform's check of the configuration leave the method as it was."""
    check = CpuPlatform.check_and_update_config
    method = os.environ.get(METHOD, "fork")

    def checked(_platform: type[CpuPlatform], config: Any) -> None:
        check(config)
        os.environ[METHOD] = method

    CpuPlatform.check_and_update_config = classmethod(checked)


if __name__ == "__main__":
    # Not with an import of `keep_method`: this takes seconds, and `LLM` does not need it.
    from vllm.entrypoints.cli.main import main

    keep_method()
    main()
