"""The configurations with which engines started."""

from collections.abc import Sequence

from sqlalchemy import Engine

from store.replicas import engine_starts
from telemetry.starts import EngineStart


def last_starts(engine: Engine) -> Sequence[EngineStart]:
    """The last start of each engine."""
    return engine_starts.in_force(engine)


def starts_with(engine: Engine, fingerprint: str) -> Sequence[EngineStart]:
    """A start for each configuration whose fingerprint begins with these digits. Only one, if it is
    equal."""
    found = engine_starts.starts_of(engine, fingerprint)
    exact = [start for start in found if start.config == fingerprint]
    return exact if len(exact) == 1 else found
