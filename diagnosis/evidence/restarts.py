"""Starts of engines that bear on the slow requests.

Pure.
"""

from collections.abc import Sequence

import numpy as np

from diagnosis.growth.case import Case
from diagnosis.growth.terms import TERMS, excess_s
from diagnosis.inputs.requests import BoolArray, FloatArray, Requests
from diagnosis.latency.parts import selected_latency_s
from diagnosis.latency.tail import BODY_GROWTH_RATIOS
from telemetry.starts import EngineStart

_LEAD_S = 120.0
"""How long before the window a start may still be felt in it."""
_WARM_S = 120.0
_ENOUGH = 20
_FEWEST = 8
_MORE = 1.5
_ERRORS = 2.0
"""Times as many slow requests as in the baseline, and standard errors beyond that."""
_LEAST_WARM_S = 15.0
_AWAY_S = 30.0
"""How long the others get a starting server's share, where nobody tells."""
_PAUSE_S = 5.0


def restarts(case: Case) -> list[EngineStart]:
    """Starts in or just before the window of replicas that had been there in the baseline."""
    window, baseline = case.question.window, case.question.baseline
    earliest = max(window.from_unix_ns - int(_LEAD_S * 1e9), baseline.from_unix_ns)
    replica = case.before.label("replica")
    there = {replica.values[code] for code in np.unique(replica.codes) if code >= 0}
    return sorted(
        (
            start
            for start in case.servers.starts
            if earliest <= start.at_unix_ns < window.to_unix_ns
            and (start.replica in there or start.replica in case.slow_replicas)
        ),
        key=lambda start: start.at_unix_ns,
    )


def since_start_s(requests: Requests, started: Sequence[EngineStart]) -> FloatArray:
    """(n,) seconds from the nearest start of its own engine, or of any where that has none, to
    each request; negative for those that came while the server was starting."""
    at = requests.received_unix_ns
    nearest = np.full(at.size, np.inf)
    for start in started:
        own = requests.of_engine(start.replica, start.engine)
        apart = (at - start.at_unix_ns) / 1e9
        # While one server is away, its requests are the others' load.
        felt = np.where(own | (apart < _WARM_S / 2), apart, np.inf)
        nearest = np.where(np.abs(felt) < np.abs(nearest), felt, nearest)
    return nearest


def warm_after_s(case: Case, started: Sequence[EngineStart]) -> float:
    """How long after a start its queue is as it was before; two minutes at most."""
    engines, window = case.servers.engines, case.question.window
    usual, _ = case.most("waiting")
    longest = 0.0
    for start in started:
        if start.replica not in engines.replica.values:
            return _WARM_S
        mine = engines.replica.codes == engines.replica.values.index(start.replica)
        number = engines.number("engine")
        mine &= np.isnan(number) | (number == start.engine)
        after = mine & (engines.at_unix_ns >= start.at_unix_ns)
        after &= engines.at_unix_ns < window.to_unix_ns
        seconds = (engines.at_unix_ns[after] - start.at_unix_ns) / 1e9
        queued = engines.number("waiting")[after] > max(1.0, usual or 0.0)
        # The end of the first stretch of queueing, with a pause of some seconds allowed in it.
        end = _LEAST_WARM_S
        for second in seconds[queued]:
            if second > end + _PAUSE_S:
                break
            end = max(end, float(second))
        longest = max(longest, end + _PAUSE_S)
    return min(longest, _WARM_S)


def around_starts(
    case: Case, started: Sequence[EngineStart], requests: Requests | None = None
) -> BoolArray:
    """(n,) the slow requests (or others) received while a server was away, or before it was
    warm."""
    since_s = since_start_s(case.slow if requests is None else requests, started)
    return np.asarray((since_s > -_LEAD_S) & (since_s < warm_after_s(case, started)))


def cold(case: Case) -> BoolArray:
    """(n,) the window's requests that a server met within two minutes of its start."""
    at = case.now.received_unix_ns
    found = np.zeros(at.size, dtype=np.bool_)
    for start in restarts(case):
        since_s = (at - start.at_unix_ns) / 1e9
        found |= (
            case.now.of_engine(start.replica, start.engine)
            & (since_s < _WARM_S)
            & (since_s > -_LEAD_S)
        )
    return found


def while_a_server_was_away(case: Case) -> BoolArray:
    """(n,) the window's requests that came while some server was away, or had just come back."""
    at = case.now.received_unix_ns
    found = np.zeros(at.size, dtype=np.bool_)
    for start in restarts(case):
        since_s = (at - start.at_unix_ns) / 1e9
        found |= (since_s > -_AWAY_S) & (since_s < _LEAST_WARM_S)
    return found


def growth_without_starts(case: Case, started: Sequence[EngineStart]) -> dict[str, float]:
    """Of each term's growth around starts, how much the slowest requests have that came at other
    times: that is not the starts' doing. Empty where there are too few of those."""
    away = case.now.rows(~around_starts(case, started, case.now))
    taken_s = selected_latency_s(away, case.question)
    known = np.flatnonzero(np.isfinite(taken_s))
    asked = int(case.now.matching(case.question.where).sum())
    number = round(known.size * len(case.slow) / max(asked, 1))
    if number < _FEWEST:
        return {}
    slowest = known[np.argsort(-taken_s[known], kind="stable")[:number]]
    elsewhere = excess_s(
        away.rows(slowest), case.usual, case.question.metric, case.work, case.workload
    ).mean(axis=0)
    here = case.terms[around_starts(case, started)].mean(axis=0)
    return {
        term: min(max(float(elsewhere[place] / here[place]), 0.0), 1.0)
        for place, term in enumerate(TERMS)
        if here[place] > 0 and not term.endswith("_stall")  # first shapes come late, too
    }


def new_configs(case: Case) -> tuple[str, ...]:
    """Configurations of slow requests that the baseline did not know."""
    slow, before = case.slow.label("config"), case.before.label("config")
    known = {before.values[code] for code in np.unique(before.codes) if code >= 0}
    found = [slow.values[code] for code in np.unique(slow.codes) if code >= 0]
    return tuple(name for name in found if name not in known)


def deploys(case: Case) -> list[EngineStart]:
    """The starts that brought a new configuration: of each replica the first with it. Who starts
    again with the same arguments does so for another reason."""
    configs, seen = new_configs(case), set[tuple[str, int, str]]()
    found = []
    for start in restarts(case):
        which = (start.replica, start.engine, start.config)
        if start.config in configs and which not in seen:
            found.append(start)
        seen.add(which)
    return found


def new_config_stays_slow(case: Case) -> bool:
    """Whether requests with a new configuration stay slower than before past its warm-up.

    The warm-up's own are the slowest as a rule, and say nothing of what comes after it.
    """
    configs = new_configs(case)
    if not configs:
        return False
    started = [start for start in restarts(case) if start.config in configs]
    first = min((start.at_unix_ns for start in started), default=case.question.window.from_unix_ns)
    warm_s = warm_after_s(case, started)
    label = case.now.label("config")
    new = np.zeros(len(case.now), dtype=np.bool_)
    for config in configs:
        new |= label.is_value(config)
    late = new & ((case.now.received_unix_ns - first) / 1e9 > warm_s)
    taken_s = selected_latency_s(case.now, case.question)[late]
    taken_s = taken_s[np.isfinite(taken_s)]
    if taken_s.size < _ENOUGH:
        return False
    before_s = selected_latency_s(case.before, case.question)
    before_s = before_s[np.isfinite(before_s)]
    levels = {len(case.usual) / max(before_s.size, 1): _MORE, **BODY_GROWTH_RATIOS}
    return any(
        float((taken_s > np.quantile(before_s, 1.0 - level)).mean())
        > more * level + _ERRORS * np.sqrt(level / taken_s.size)
        for level, more in levels.items()
    )
