"""Starts of engines with their arguments, and the differences between two starts. Pure.

`arguments` is a JSON object with sorted keys such as `cache.block_size` and values that are
numbers, booleans or strings. An absent argument differs from every value.
"""

import json
from dataclasses import dataclass
from typing import Final, NamedTuple

Argument = str | int | float | bool

MEASURED: Final = "cache.num_gpu_blocks"
"""vLLM measures this value at each start, so it may differ between engines with equal arguments."""

MAX_LOADING_S: Final = 3_600.0
"""Maximum plausible `loading_s`. By default, vLLM stops a start after 600 s
(VLLM_ENGINE_READY_TIMEOUT_S)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """The start of an engine, which was ready at `at_unix_ns`.

    `config` is the fingerprint of the arguments. `device` and `gpus` are the name and number of its
    GPUs. `shape` is the model's shape as JSON.
    """

    replica: str
    engine: int
    process: int
    at_unix_ns: int
    config: str
    arguments: str
    simulated: bool = False
    model: str | None = None
    region: str | None = None
    version: str | None = None
    device: str | None = None
    gpus: int | None = None
    shape: str | None = None
    loading_s: float | None = None
    """Seconds from the start of the process until the engine was ready."""
    clock_ahead_s: float | None = None


class Difference(NamedTuple):
    """One argument that differs between two configurations. An absent value is None."""

    argument: str
    before: Argument | None
    after: Argument | None


def loading_from(start: EngineStart) -> int:
    """The time when an engine began to load (unix ns). If the engine replaces an older engine, the
    older engine stopped answering at this time."""
    return start.at_unix_ns - int((start.loading_s or 0.0) * 10**9)


def written(arguments: dict[str, Argument]) -> str:
    """Convert arguments to the JSON text that `EngineStart` stores."""
    return json.dumps(arguments, sort_keys=True, allow_nan=False)


def read(arguments: str) -> dict[str, Argument]:
    """Parse the JSON text that `written` returned."""
    found: dict[str, Argument] = json.loads(arguments)
    return found


def differences(before: str, after: str) -> list[Difference]:
    """The arguments that differ between two JSON texts, sorted by name."""
    old, new = read(before), read(after)
    return [
        Difference(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
