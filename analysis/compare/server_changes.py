"""Find changes of the servers in a range: configuration, vLLM version, number of replicas."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from store.queries import Window
from store.replicas.engine_starts import in_force, starts_between
from telemetry.starts import EngineStart


@dataclass(frozen=True, slots=True)
class ServerChange:
    """A change of the servers. A rolling deployment is one change from its first to its last
    start."""

    what: str
    """What changed, as the subject of a sentence."""
    from_unix_ns: int
    to_unix_ns: int


def server_change(engine: Engine, window: Window) -> ServerChange | None:
    """Return the change of the servers in a range, or None. It reads only engine starts."""
    return change_of(
        in_force(engine, window.from_unix_ns),
        starts_between(engine, window.from_unix_ns + 1, window.to_unix_ns),
    )


def change_of(before: Sequence[EngineStart], during: Sequence[EngineStart]) -> ServerChange | None:
    """Return the change that the starts of a range make. Pure.

    If no engine started before the range, there is no earlier state, and so no change.

    Args:
        before: the latest start of each engine before the range.
        during: the starts in the range, in order of time.
    """
    if not before:
        return None
    latest = {(each.replica, each.engine): each for each in before}
    replicas = {each.replica for each in before}
    found: dict[str, list[int]] = {}
    for each in during:
        was = latest.get((each.replica, each.engine))
        if was is None and each.replica not in replicas:
            found.setdefault("The number of replicas", []).append(each.at_unix_ns)
        elif was is not None and was.config != each.config:
            found.setdefault("The configuration", []).append(each.at_unix_ns)
        elif was is not None and was.version != each.version:
            found.setdefault("The version of vLLM", []).append(each.at_unix_ns)
        latest[each.replica, each.engine] = each
        replicas.add(each.replica)
    if not found:
        return None
    what = max(found, key=lambda name: len(found[name]))
    return ServerChange(what, min(found[what]), max(found[what]))
