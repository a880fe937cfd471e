"""Detects vLLM's Rust front end, which loads no plugins.

With `VLLM_USE_RUST_FRONTEND=1`, `vllm serve` starts the Rust front end. `vllm-rs serve` starts its
engine cores through the module `headless_engine`. An engine core inherits its parent's command
line.

Source: vllm/entrypoints/cli/serve.py, 0.22 to 0.33; rust/src/managed-engine/src/process.rs.
"""

from collections.abc import Sequence
from typing import Final

DEFAULT_PORT: Final = 8000
"""The port of `vllm serve` and of `python -m vllm.entrypoints.openai.api_server`."""

_MANAGED: Final = "headless_engine.py"
_API_SERVER: Final = "vllm/entrypoints/openai/api_server.py"


def has_rust_front_end(command_line: Sequence[str]) -> bool:
    """Return whether the Rust front end serves this engine core. `command_line` is as in
    `sys.argv`."""
    if not command_line:
        return False
    if command_line[0].endswith(_MANAGED):
        return True
    return "serve" in command_line[1:2] and _chosen()


def served_port(command_line: Sequence[str]) -> int | None:
    """The server's port, or None if the command line does not contain it.

    All engine cores must find the same port, because it is part of the replica's name.
    """
    words = list(command_line)
    for place, word in enumerate(words):
        name, has_value, value = word.partition("=")
        if name != "--port":
            continue
        given = value if has_value else "".join(words[place + 1 : place + 2])
        return int(given) if given.isdigit() else None
    without_port = {"--headless", "--config", "--uds"} & {word.partition("=")[0] for word in words}
    serves = "serve" in words[1:2] or "".join(words[:1]).endswith(_API_SERVER)
    return DEFAULT_PORT if serves and not without_port else None


def _chosen() -> bool:
    try:
        from vllm import envs

        return bool(getattr(envs, "VLLM_USE_RUST_FRONTEND", False))
    except (ImportError, ValueError):  # vLLM refuses a value that is not a number
        return False
