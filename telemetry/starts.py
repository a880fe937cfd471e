"""What an engine was started with, and how two starts differ.

Pure. `arguments` is a JSON object of numbers, switches and names by `part.name`, its keys
sorted; an unknown argument is absent, and differs from one that is.
"""

import json
from dataclasses import dataclass
from typing import Final, NamedTuple

Argument = str | int | float | bool

MOST_LOADING_S: Final = 3_600.0
"""A longer `loading_s` is not the loading of an engine: six times what vLLM waits for one
(VLLM_ENGINE_READY_TIMEOUT_S, 600 s). A program that makes an engine late in its life reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """From `at_unix_ns` on one engine ran with these arguments. Unknown is None.

    `config` is the fingerprint that requests and samples bear. `device` is what it runs on, by
    name, and `gpus` how many of it; `shape`, what its model is built of, is JSON like
    `arguments`.
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
    """From the start of the process until the engine was ready, at `at_unix_ns`."""
    clock_ahead_s: float | None = None
    """As of a request: by how much its instants were set back."""


class Difference(NamedTuple):
    """One argument that two configurations do not share; None where one lacks it."""

    argument: str
    before: Argument | None
    after: Argument | None


def written(arguments: dict[str, Argument]) -> str:
    """Arguments as `EngineStart` keeps them."""
    return json.dumps(arguments, sort_keys=True, allow_nan=False)


def read(arguments: str) -> dict[str, Argument]:
    """The inverse of `written`."""
    found: dict[str, Argument] = json.loads(arguments)
    return found


def differences(before: str, after: str) -> list[Difference]:
    """What differs between the arguments of two starts, by name."""
    old, new = read(before), read(after)
    return [
        Difference(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
