"""Runs vLLM's command with forked engines and workers, as on a GPU.

On a GPU, vLLM forks these processes unless the GPU is already in use. vLLM's CPU platform starts
each process as a new interpreter, which imports all modules again. This program forks the processes
on a CPU too, unless VLLM_WORKER_MULTIPROC_METHOD=spawn is set.
"""

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def keep_method() -> None:
    """Keep the start method (fork), which vLLM's CPU platform would change in its configuration
    check."""
    check = CpuPlatform.check_and_update_config
    method = os.environ.get(METHOD, "fork")

    def checked(_platform: type[CpuPlatform], config: Any) -> None:
        check(config)
        os.environ[METHOD] = method

    CpuPlatform.check_and_update_config = classmethod(checked)


if __name__ == "__main__":
    # This import takes seconds. Programs that import only `keep_method` do not need this import.
    from vllm.entrypoints.cli.main import main

    keep_method()
    main()
