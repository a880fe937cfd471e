"""Measure changes of the traffic at times when all servers serve requests and are warm. Pure.

A restart causes cache misses and uneven routing. If misses or uneven routing also occur without a
restart, they have another cause.
"""

from math import log

from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.restarts import cold, while_a_server_was_away
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import grew, log_of_misses
from diagnosis.inputs.requests import MIN_REQUESTS, Requests


@cached_per_case
def prompts_grew_over_window(case: DiagnosisCase) -> bool:
    """Return whether prompts became longer, in the whole window or in its hot blocks. The hot
    blocks alone may contain too few very long prompts."""
    before, now = (each.number("prompt_tokens") for each in (case.before, case.now))
    return case.workload.prompts_grew or grew(before, now)


@cached_per_case
def log_skew_outside_restarts(case: DiagnosisCase) -> float:
    """Return log(now / before) of the slow servers' share of the requests. Requests that arrive
    while a server is restarting or hangs are excluded."""
    apart = case.now.rows(~while_a_server_was_away(case))
    if len(apart) < MIN_REQUESTS:
        return 0.0
    before, now = (_share_of_slow_servers(case, each) for each in (case.before, apart))
    return log(now / before) if before > 0 and now > 0 else 0.0


def _share_of_slow_servers(case: DiagnosisCase, requests: Requests) -> float:
    theirs = requests.server.is_any(case.slow_servers)
    return float(theirs.mean()) if theirs.size else 0.0


@cached_per_case
def log_misses_outside_restarts(case: DiagnosisCase) -> float:
    """Return the logarithm of the factor by which cache misses lengthened prefill. Requests within
    two minutes of a start are excluded, because a start empties the cache."""
    apart = case.now.rows(~cold(case))
    return log_of_misses(apart, case.work) if len(apart) >= MIN_REQUESTS else 0.0
