"""What changed apart from where a server was away or not yet warm.

Pure. A restart brings misses and skew with it: what is no restart's is seen apart from it.
"""

from math import log

from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.restarts import cold, while_a_server_was_away
from diagnosis.growth.case import Case
from diagnosis.growth.demand import grew, log_of_misses
from diagnosis.inputs.requests import Requests

_FEWEST = 20


@cached_per_case
def prompts_grew_over_window(case: Case) -> bool:
    """Whether prompts became longer over the window: a few huge ones are too few in a minute."""
    before, now = (each.number("prompt_tokens") for each in (case.before, case.now))
    return case.workload.prompts_grew or grew(before, now)


@cached_per_case
def log_skew_outside_restarts(case: Case) -> float:
    """Of the share of the traffic that the slow requests' replicas get while no server is away:
    the others get what it does not."""
    apart = case.now.rows(~while_a_server_was_away(case))
    if len(apart) < _FEWEST:
        return 0.0
    before, now = (_share_of_slow_replicas(case, each) for each in (case.before, apart))
    return log(now / before) if before > 0 and now > 0 else 0.0


def _share_of_slow_replicas(case: Case, requests: Requests) -> float:
    theirs = requests.label("replica").is_any(case.slow_replicas)
    return float(theirs.mean()) if theirs.size else 0.0


@cached_per_case
def log_misses_outside_restarts(case: Case) -> float:
    """Of prefill that no cache spared, over the requests that no empty cache met."""
    apart = case.now.rows(~cold(case))
    return log_of_misses(apart, case.work) if len(apart) >= _FEWEST else 0.0
