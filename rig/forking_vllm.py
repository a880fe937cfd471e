"""Run vLLM's command so that engines and workers are forked, as on a GPU.

On the CPU, vLLM would start each process as a new interpreter, which imports all modules again. Set
VLLM_WORKER_MULTIPROC_METHOD=spawn to start new interpreters.
"""

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def keep_method() -> None:
    """Prevent vLLM's CPU platform from changing the start method of processes."""
    check = CpuPlatform.check_and_update_config
    method = os.environ.get(METHOD, "fork")

    def checked(_platform: type[CpuPlatform], config: Any) -> None:
        check(config)
        os.environ[METHOD] = method

    CpuPlatform.check_and_update_config = classmethod(checked)


if __name__ == "__main__":
    # Import vLLM's command only here. This takes seconds, and callers of `keep_method` do not need
    # it.
    from vllm.entrypoints.cli.main import main

    keep_method()
    main()
