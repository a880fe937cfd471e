"""A vLLM plugin that writes each engine step to a file, for `benchmarks/step_fit.py`.

vLLM loads this plugin if its folder is on PYTHONPATH. This plugin requires Tailspan's plugin, and
the environment variable `STEP_RECORDER_FILE` with the path of the file.
"""

import json
import os
import time
from typing import Any

FLUSH_S = 1.0


def install() -> None:
    """Entry point `vllm.general_plugins`: record each step that is added to the step ledger."""
    path = os.environ.get("STEP_RECORDER_FILE")
    if not path:
        return
    from tailspan_vllm.engine_core.step_ledger import Ledger

    end_step = Ledger.end_step
    lines: list[str] = []
    flushed = 0.0

    def recorded(self: Any, work: Any, begun: float, ended: float, *rest: Any, **named: Any) -> Any:
        nonlocal flushed
        stall = end_step(self, work, begun, ended, *rest, **named)
        lines.append(json.dumps([ended, max(ended - begun, 0.0), stall, *work]))
        # Write the steps at least once per second, because SIGTERM may end the process at any time.
        if (now := time.monotonic()) - flushed > FLUSH_S:
            with open(path, "a") as file:  # noqa: PTH123
                file.write("\n".join(lines) + "\n")
            lines.clear()
            flushed = now
        return stall

    Ledger.end_step = recorded  # type: ignore[method-assign]
