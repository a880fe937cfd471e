"""Find changes of the servers in a range: configuration, vLLM version, number of replicas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from sqlalchemy import Engine

from analysis.staleness import STALE_S
from store.replicas.engine_starts import in_force, starts_between
from store.replicas.last_samples import last_samples
from telemetry.starts import EngineStart, loading_from
from telemetry.window import Window

ROLLING_NS: Final = 600 * 10**9
"""Maximum time between two starts of one rolling deployment. Kubernetes considers a Deployment as
failed after 600 s without progress (progressDeadlineSeconds)."""
STALE_NS: Final = int(STALE_S * 10**9)
REPLICAS: Final = "The number of replicas"
CONFIGURATION: Final = "The configuration"
VERSION: Final = "The version of vLLM"


@dataclass(frozen=True, slots=True)
class ServerChange:
    """A change of the servers. A rolling deployment is one change. It lasts from the time at which
    the first engine begins to load until the last start."""

    what: str
    """What changed, as the subject of a sentence."""
    from_unix_ns: int
    to_unix_ns: int


class _Event(NamedTuple):
    """A part of a change: the start of an engine, or the end of a replica."""

    what: str
    from_unix_ns: int
    to_unix_ns: int


def server_change(engine: Engine, window: Window) -> ServerChange | None:
    """The latest change of the servers in a range, or None."""
    before = in_force(engine, window.from_unix_ns)
    during = starts_between(engine, window.from_unix_ns + 1, window.to_unix_ns)
    # A replica may end just before the range, and its replacement may start in the range.
    longer = Window(max(0, window.from_unix_ns - ROLLING_NS), window.to_unix_ns)
    last_unix_ns = last_samples(engine, [*before, *during], longer)
    return change_of(before, during, last_unix_ns, window.from_unix_ns)


def change_of(
    before: Sequence[EngineStart],
    during: Sequence[EngineStart],
    last_unix_ns: Mapping[str, int] = MappingProxyType({}),
    from_unix_ns: int = 0,
) -> ServerChange | None:
    """The latest change in a range. Pure.

    If no engine started before the range, later starts are compared with the first deployment in
    the range. If a new replica starts when an old replica ends, it replaces the old replica.

    Args:
        last_unix_ns: the last sample of each replica. A replica has ended if it sends no samples
            while other replicas do.
        from_unix_ns: the start of the range. An earlier end of a replica is not a change.
    """
    if not before:
        number = _first_starts(during)
        before, during = during[:number], during[number:]
    silent = _silent_replicas(last_unix_ns)
    latest = {(each.replica, each.engine): each for each in before}
    known = {each.replica for each in before}
    replaced: dict[str, str] = {}
    found: list[_Event] = []
    for each in during:
        if each.replica not in known:
            gone = _nearest_end(each, silent, known - set(replaced.values()))
            if gone is not None:
                replaced[each.replica] = gone
        was = latest.get((each.replica, each.engine))
        if was is None and each.replica in replaced:
            was = latest.get((replaced[each.replica], each.engine))
        what: str | None = REPLICAS
        if was is not None or each.replica in known | replaced.keys():
            what = _difference(was, each)
        if what is not None:
            found.append(_Event(what, loading_from(each), each.at_unix_ns))
        latest[each.replica, each.engine] = each
        known.add(each.replica)
    newest = max(last_unix_ns.values(), default=0)
    found += [
        _Event(REPLICAS, silent[each], silent[each])
        for each in known - set(replaced.values())
        if each in silent and silent[each] >= from_unix_ns and newest - silent[each] > ROLLING_NS
    ]
    return _latest_change(found)


def _latest_change(found: Iterable[_Event]) -> ServerChange | None:
    latest: list[_Event] = []
    for each in sorted(found, key=lambda event: event.to_unix_ns):
        if latest and each.to_unix_ns - latest[-1].to_unix_ns > ROLLING_NS:
            latest.clear()
        latest.append(each)
    if not latest:
        return None
    names = [each.what for each in latest]
    return ServerChange(
        max(names, key=names.count),
        min(each.from_unix_ns for each in latest),
        max(each.to_unix_ns for each in latest),
    )


def _difference(was: EngineStart | None, now: EngineStart) -> str | None:
    """Return what differs between two starts, or None if nothing differs or there is no earlier
    start."""
    if was is None:
        return None
    if was.config != now.config:
        return CONFIGURATION
    return VERSION if was.version != now.version else None


def _silent_replicas(last_unix_ns: Mapping[str, int]) -> dict[str, int]:
    """Return the last sample of each replica that sends no samples while other replicas do."""
    newest = max(last_unix_ns.values(), default=0)
    return {name: last for name, last in last_unix_ns.items() if newest - last > STALE_NS}


def _nearest_end(
    start: EngineStart, silent: Mapping[str, int], replicas: Iterable[str]
) -> str | None:
    """The replica whose end was closest in time to the loading of an engine.

    Return None if no replica ended within `ROLLING_NS` of the loading."""
    distances = {
        name: max(loading_from(start) - silent[name], silent[name] - start.at_unix_ns, 0)
        for name in replicas
        if name in silent
    }
    nearest = min(distances, key=lambda name: (distances[name], name), default=None)
    return nearest if nearest is not None and distances[nearest] <= ROLLING_NS else None


def _first_starts(starts: Sequence[EngineStart]) -> int:
    """The number of starts in the first deployment of a fleet.

    The first deployment ends when an engine starts for the second time, or when no engine starts
    for more than `ROLLING_NS`."""
    seen: set[tuple[str, int]] = set()
    for place, each in enumerate(starts):
        key = each.replica, each.engine
        late = place and each.at_unix_ns - starts[place - 1].at_unix_ns > ROLLING_NS
        if key in seen or late:
            return place
        seen.add(key)
    return len(starts)
