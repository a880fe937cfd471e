"""Find engine starts and hangs that may have delayed the slow requests. Pure.

A server that restarts or hangs is away. After a start, a server is warm when its queue has its
usual length again.
"""

from collections.abc import Sequence

import numpy as np

from diagnosis.evidence.cached import cached_per_case
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.terms import TERMS, excess_s
from diagnosis.inputs.hung_engines import EngineHang, hangs, unfinished
from diagnosis.inputs.requests import MIN_REQUESTS, BoolArray, Requests
from diagnosis.latency.parts import selected_latency_s
from diagnosis.latency.tail import BODY_GROWTH_RATIOS, TAIL_GROWTH_RATIO
from telemetry.starts import EngineStart

_LOADING_S = 120.0
"""Assumed loading time, in seconds, of an engine that does not report it. A start on an H200 took
91 s (docs/benchmarks.md)."""
MAX_WARM_S = 120.0
"""Maximum time, in seconds, until a started server is warm."""
_ERRORS = 2.0
"""The share of slow requests must exceed a limit by this number of standard errors. The limit is
the baseline's share, multiplied by `TAIL_GROWTH_RATIO` or a value of `BODY_GROWTH_RATIOS`. For a
normal distribution, 95 % of the values are within 2 standard errors."""
_MIN_WARM_S = 15.0
"""Minimum time, in seconds, until a started server counts as warm. In 150 simulated cases, an
infinite minimum gave the same results."""
_PAUSE_S = 5.0
"""A queue has ended if no sample shows it for this many seconds. Samples are one second apart."""


def restarts(case: DiagnosisCase) -> list[EngineStart]:
    """Return the engine starts in or shortly before the window, in order of time. The replica of a
    start must have served requests in the baseline, or slow requests in the window."""
    window, baseline = case.question.window, case.question.baseline
    earliest = max(window.from_unix_ns - int(MAX_WARM_S * 1e9), baseline.from_unix_ns)
    there = case.before.label("replica").present
    return sorted(
        (
            start
            for start in case.servers.starts
            if earliest <= start.at_unix_ns < window.to_unix_ns
            and (start.replica in there or start.replica in case.slow_replicas)
        ),
        key=lambda start: start.at_unix_ns,
    )


@cached_per_case
def hangs_in_window(case: DiagnosisCase) -> list[EngineHang]:
    """The hangs that prevented requests of the window from ending. An engine that later finishes
    its requests did not hang: it stalled."""
    hung = unfinished(case.now)
    if not hung.any():
        return []
    at = case.now.received_unix_ns
    return [
        hang
        for hang in hangs(case.servers.engines)
        if hang.to_unix_ns > case.question.window.from_unix_ns
        and (hung & case.now.of_engine(hang.replica, hang.engine) & (at < hang.to_unix_ns)).any()
    ]


def ends_of_hangs(case: DiagnosisCase) -> list[EngineStart]:
    """Return each hung engine's first start after the hang."""
    found = []
    for hang in hangs_in_window(case):
        ended_by = next(
            (
                start
                for start in restarts(case)
                if (start.replica, start.engine) == (hang.replica, hang.engine)
                and start.at_unix_ns >= hang.to_unix_ns
            ),
            None,
        )
        if ended_by is not None:
            found.append(ended_by)
    return found


def _during_start(requests: Requests, start: EngineStart, warm_s: float) -> BoolArray:
    """Return whether each request was in progress while an engine loaded: (n,).

    Requests that were received up to `warm_s` seconds after the engine was ready are also
    included."""
    since_ready_s = (requests.received_unix_ns - start.at_unix_ns) / 1e9
    loading_s = _LOADING_S if start.loading_s is None else start.loading_s
    taken_s = np.nan_to_num(requests.number("e2e_s"), nan=np.inf)
    return np.asarray((since_ready_s < warm_s) & (since_ready_s + taken_s > -loading_s))


def warm_after_s(case: DiagnosisCase, started: Sequence[EngineStart]) -> float:
    """Return the seconds, at most 120, from a start until the queue has its usual length again.

    If there are several starts, the largest value is returned."""
    engines, window = case.servers.engines, case.question.window
    usual, _ = case.p99("waiting")
    longest = 0.0
    for start in started:
        if start.replica not in engines.replica.values:
            return MAX_WARM_S
        mine = engines.replica.codes == engines.replica.values.index(start.replica)
        number = engines.number("engine")
        mine &= np.isnan(number) | (number == start.engine)
        after = mine & (engines.at_unix_ns >= start.at_unix_ns)
        after &= engines.at_unix_ns < window.to_unix_ns
        seconds = (engines.at_unix_ns[after] - start.at_unix_ns) / 1e9
        queued = engines.number("waiting")[after] > max(1.0, usual or 0.0)
        # The first queueing period ends at the first pause that is longer than `_PAUSE_S`.
        end = _MIN_WARM_S
        for second in seconds[queued]:
            if second > end + _PAUSE_S:
                break
            end = max(end, float(second))
        longest = max(longest, end + _PAUSE_S)
    return min(longest, MAX_WARM_S)


def around_starts(
    case: DiagnosisCase,
    started: Sequence[EngineStart],
    requests: Requests | None = None,
    warm_s: float | None = None,
) -> BoolArray:
    """Return whether each request was in progress around one of these starts: (n,).

    At this time, the server loads or is not yet warm. If `warm_s` is None, `warm_after_s`
    determines when the server is warm.

    Requests to other servers are also included, if they were in progress up to a minute after the
    start.
    """
    requests = case.slow if requests is None else requests
    warm_s = warm_after_s(case, started) if warm_s is None else warm_s
    found = np.zeros(len(requests), dtype=np.bool_)
    for start in started:
        own = requests.of_engine(start.replica, start.engine)
        found |= own & _during_start(requests, start, warm_s)
        found |= _during_start(requests, start, min(warm_s, MAX_WARM_S / 2))
    return found


def cold(case: DiagnosisCase) -> BoolArray:
    """Return whether each request of the window was in progress while its server loaded: (n,).

    Requests up to two minutes after the start are also included."""
    found = np.zeros(len(case.now), dtype=np.bool_)
    for start in restarts(case):
        own = case.now.of_engine(start.replica, start.engine)
        found |= own & _during_start(case.now, start, MAX_WARM_S)
    return found


def while_a_server_was_away(case: DiagnosisCase) -> BoolArray:
    """Return whether each request of the window was in progress while any server restarted or hung:
    (n,).

    Requests just after a start are also included.
    """
    found = while_an_engine_hung(case, case.now)
    for start in restarts(case):
        found |= _during_start(case.now, start, _MIN_WARM_S)
    return found


def while_an_engine_hung(case: DiagnosisCase, requests: Requests) -> BoolArray:
    """Return whether each request arrived while an engine of any server hung: (n,)."""
    at = requests.received_unix_ns
    found = np.zeros(at.size, dtype=np.bool_)
    for hang in hangs_in_window(case):
        found |= (at >= hang.from_unix_ns) & (at < hang.to_unix_ns)
    return found


def growth_without_starts(case: DiagnosisCase, started: Sequence[EngineStart]) -> dict[str, float]:
    """Return for each term: (growth at other times) / (growth around the starts), in [0, 1].

    The growth at other times is measured on the slowest requests that did not arrive around the
    starts. The result is empty if there are too few such requests.
    """
    away = case.now.rows(~around_starts(case, started, case.now))
    taken_s = selected_latency_s(away, case.question)
    known = np.flatnonzero(np.isfinite(taken_s))
    selected = int(case.now.matching(case.question.where).sum())
    number = round(known.size * len(case.slow) / max(selected, 1))
    if number < MIN_REQUESTS:
        return {}
    slowest = known[np.argsort(-taken_s[known], kind="stable")[:number]]
    without_starts_s = excess_s(
        away.rows(slowest), case.usual, case.question.metric, case.work, case.workload
    ).mean(axis=0)
    around = around_starts(case, started)
    if not around.any():
        return {}
    here = case.terms[around].mean(axis=0)
    return {
        term: min(max(float(without_starts_s[index] / here[index]), 0.0), 1.0)
        for index, term in enumerate(TERMS)
        # Stalls also occur long after a start, because each new batch shape is slow at its first
        # use.
        if here[index] > 0 and not term.endswith("_stall")
    }


def new_configs(case: DiagnosisCase) -> tuple[str, ...]:
    """Return the server configurations of slow requests that no request of the baseline reports."""
    known = case.before.label("config").present
    return tuple(name for name in case.slow.label("config").present if name not in known)


def deploys(case: DiagnosisCase) -> list[EngineStart]:
    """Return the deploys: for each engine and each new configuration, the first start."""
    configs, seen = new_configs(case), set[tuple[str, int, str]]()
    found = []
    for start in restarts(case):
        which = (start.replica, start.engine, start.config)
        if start.config in configs and which not in seen:
            found.append(start)
        seen.add(which)
    return found


def new_config_stays_slow(case: DiagnosisCase) -> bool:
    """Return whether requests with a new configuration remain slow after the servers are warm.

    They are compared with the baseline's requests."""
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
    if taken_s.size < MIN_REQUESTS:
        return False
    before_s = selected_latency_s(case.before, case.question)
    before_s = before_s[np.isfinite(before_s)]
    levels = {len(case.usual) / max(before_s.size, 1): TAIL_GROWTH_RATIO, **BODY_GROWTH_RATIOS}
    return any(
        float((taken_s > np.quantile(before_s, 1.0 - level)).mean())
        > more * level + _ERRORS * np.sqrt(level / taken_s.size)
        for level, more in levels.items()
    )
