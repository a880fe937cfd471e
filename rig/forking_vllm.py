"""Runs vLLM's command with forked engines and workers, as on a GPU.

vLLM's CPU platform would start each process as a new interpreter, which imports all modules again.
VLLM_WORKER_MULTIPROC_METHOD=spawn keeps this.
"""

import os
from typing import Any

from vllm.platforms.cpu import CpuPlatform

METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def keep_method() -> None:
    """Keep the start method, which vLLM's CPU platform would change in its configuration check."""
    check = CpuPlatform.check_and_update_config
    method = os.environ.get(METHOD, "fork")

    def checked(_platform: type[CpuPlatform], config: Any) -> None:
        check(config)
        os.environ[METHOD] = method

    CpuPlatform.check_and_update_config = classmethod(checked)


if __name__ == "__main__":
    # This import takes seconds, and users of `keep_method` do not need it.
    from vllm.entrypoints.cli.main import main

    keep_method()
    main()
