"""Find changes of the servers in a range: configuration, vLLM version, number of replicas."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from store.queries import Window
from store.replicas.engine_starts import in_force, starts_between
from telemetry.starts import EngineStart, loading_from

ROLLING_NS: Final = 600 * 10**9
"""Maximum time between two starts of one rolling deployment.

Kubernetes considers a Deployment without progress for 600 s as failed (progressDeadlineSeconds).
"""


@dataclass(frozen=True, slots=True)
class ServerChange:
    """A change of the servers. A rolling deployment is one change from the time when its first
    engine began to load until its last start."""

    what: str
    """What changed, as the subject of a sentence."""
    from_unix_ns: int
    to_unix_ns: int


def server_change(engine: Engine, window: Window) -> ServerChange | None:
    """Return the latest change of the servers in a range, or None. It reads only engine starts."""
    return change_of(
        in_force(engine, window.from_unix_ns),
        starts_between(engine, window.from_unix_ns + 1, window.to_unix_ns),
    )


def change_of(before: Sequence[EngineStart], during: Sequence[EngineStart]) -> ServerChange | None:
    """Return the latest change that the starts of a range make. Pure.

    If no engine started before the range, the first starts of the range are the earlier state.

    Args:
        before: the latest start of each engine before the range.
        during: the starts in the range, in order of time.
    """
    if not before:
        number = _first_starts(during)
        before, during = during[:number], during[number:]
    latest = {(each.replica, each.engine): each for each in before}
    replicas = {each.replica for each in before}
    found: list[tuple[str, EngineStart]] = []
    for each in during:
        was = latest.get((each.replica, each.engine))
        what = None
        if was is None and each.replica not in replicas:
            what = "The number of replicas"
        elif was is not None and was.config != each.config:
            what = "The configuration"
        elif was is not None and was.version != each.version:
            what = "The version of vLLM"
        if what is not None:
            if found and each.at_unix_ns - found[-1][1].at_unix_ns > ROLLING_NS:
                found.clear()
            found.append((what, each))
        latest[each.replica, each.engine] = each
        replicas.add(each.replica)
    if not found:
        return None
    names = [what for what, _ in found]
    return ServerChange(
        max(names, key=names.count),
        min(loading_from(each) for _, each in found),
        max(each.at_unix_ns for _, each in found),
    )


def _first_starts(starts: Sequence[EngineStart]) -> int:
    """Return how many starts make the first state of a fleet: those until an engine starts again,
    or until a gap that is too long for one rolling deployment."""
    seen: set[tuple[str, int]] = set()
    for place, each in enumerate(starts):
        key = each.replica, each.engine
        late = place and each.at_unix_ns - starts[place - 1].at_unix_ns > ROLLING_NS
        if key in seen or late:
            return place
        seen.add(key)
    return len(starts)
