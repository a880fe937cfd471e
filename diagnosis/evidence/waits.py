"""How detectors claim what waited: by the driver that each kind of waiting is blamed on.

Pure.
"""

from typing import Final

import numpy as np

from diagnosis.evidence import drivers
from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.held_requests import adapters_are_loading, fetches_kv, needs_adapter
from diagnosis.evidence.outside_restarts import (
    log_misses_outside_restarts,
    log_skew_outside_restarts,
    prompts_grew_over_window,
)
from diagnosis.evidence.traffic_growth import flooded
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray
from diagnosis.question import Metric

OF_SEATS: Final = ("queue_seats", "queue_unsplit")
"""What more sequences at a time bring: a wait for a place."""

OF_BATCH: Final = ("prefill_others_decode", "decode_others_decode")
"""And longer steps for those in one. That is decode_batch_growth's, whatever filled the batch
with more work; it is another's where the same work merely stays longer, or is sent here."""

OF_PREFILL: Final = ("queue_budget", "prefill_others_prefill", "decode_others_prefill")
"""What more prefill brings: a wait for a share of the step, and for others' in it."""

OF_STEP: Final = ("handoff", "queue_step")
"""What longer steps bring: the engine looks at what came only when the step under way is over."""

OF_BLOCKS: Final = ("queue_kv",)
"""What memory must be free for first."""

_SURELY_MORE: Final = 0.25
"""A logarithm, where that is of rates beyond two standard errors of their counts."""

_AS_MUCH: Final = 1.0
"""Times: more requests at a time bring about as much of both, at least."""

OF_FRONTEND: Final = ("frontend",)
"""What the API server has to do first."""


def wait_weights(case: Case, *chosen: str) -> dict[str, float | FloatArray]:
    """Weights of the queue's and of others' prefill's terms that these drivers brought about."""
    weights: dict[str, float | FloatArray] = {}
    of_seats = drivers.for_seats(case)
    of_batch = {name: share for name, share in of_seats.items() if name not in drivers.MORE_WORK}
    for terms, shares in (
        (OF_SEATS, of_seats),
        (OF_BATCH, of_batch),
        (OF_PREFILL, drivers.for_prefill(case)),
        (OF_STEP, drivers.for_step(case)),
        (OF_FRONTEND, drivers.for_frontend(case)),
        (OF_BLOCKS, drivers.for_blocks(case)),
    ):
        share = sum(shares.get(driver, 0.0) for driver in chosen)
        if share:
            weights |= dict.fromkeys(terms, share)
    to_first_byte = case.question.metric is Metric.TTFT
    if "frontend" in weights and to_first_byte:
        weights["delivery"] = weights["frontend"]  # the first byte waits for the same process
    of_adapters = drivers.for_adapters(case)
    held = sum(of_adapters.get(driver, 0.0) for driver in chosen)
    if held and adapters_are_loading(case):
        weights["queue_held"] = held * needs_adapter(case)
    elif fetches_kv(case).any():
        of_link = drivers.for_link(case)
        fetched = sum(of_link.get(driver, 0.0) for driver in chosen)
        if fetched:
            weights["queue_held"] = fetched * fetches_kv(case)
    return weights


def shared_with_traffic(case: Case) -> dict[str, float]:
    """What of each term a restart leaves to the traffic that it met: half of what longer prompts,
    a load, a tenant's flood, a router's skew and a change of what is in the caches brought about,
    where these are beyond doubt."""
    sure = [drivers.LOAD] if case.demand.log_fleet > _SURELY_MORE else []
    if prompts_grew_over_window(case):
        sure.append(drivers.PROMPTS)
    if flooded(case):
        sure.append(drivers.FLOOD)
    if log_skew_outside_restarts(case) > _SURELY_MORE:
        sure.append(drivers.SKEW)
    if log_misses_outside_restarts(case) > _SURELY_MORE:
        sure.append(drivers.MISSES)
    found = wait_weights(case, *sure) if sure else {}
    return {term: float(np.mean(share)) / 2.0 for term, share in found.items()}


@cached_per_case
def prefill_share(case: Case) -> float:
    """Of what more traffic costs the decodes, how much is told with its prefills: all where others
    prefills stretch them half again as much as others' decodes, nothing where half as much."""
    prefills, decodes = (
        max(case.grown_s(f"decode_others_{work}"), 0.0) for work in ("prefill", "decode")
    )
    if not decodes:
        return 1.0
    return min(max(prefills / decodes - _AS_MUCH, 0.0), 1.0)
