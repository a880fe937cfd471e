"""Compute which share of each wait a cause explains (its weight).

The weight is the share of the wait that the drivers of the cause explain. A driver is a change that
raised the demand. Pure.
"""

from typing import Final

import numpy as np

from diagnosis.evidence import drivers
from diagnosis.evidence.cached import cached_per_case
from diagnosis.evidence.held_requests import adapters_are_loading, fetches_kv, waits_for_adapter
from diagnosis.evidence.outside_restarts import (
    log_misses_outside_restarts,
    log_skew_outside_restarts,
    prompts_grew_over_window,
)
from diagnosis.evidence.traffic_growth import flooded
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import NOISE
from diagnosis.inputs.requests import FloatArray
from diagnosis.question import Metric

OF_SEATS: Final = ("queue_seats", "queue_unsplit")
"""Terms for the wait for a slot in the batch."""

OF_BATCH: Final = ("prefill_others_decode", "decode_others_decode")
"""Terms for the time that a fuller batch adds to a step. `decode_batch_growth` claims these terms
for changes that add work to a batch (`drivers.MORE_WORK`). `wait_weights` attributes them only to
other changes, for example a slower machine."""

OF_PREFILL: Final = ("queue_budget", "prefill_others_prefill", "decode_others_prefill")
"""Terms for the delay by the prefills of other requests."""

OF_STEP: Final = ("handoff", "queue_step")
"""Terms for the wait for the end of a step. The engine accepts new requests only between two
steps."""

OF_BLOCKS: Final = ("queue_kv",)

OF_FRONTEND: Final = ("frontend",)


def wait_weights(case: DiagnosisCase, *chosen: str) -> dict[str, float | FloatArray]:
    """Return the share of each wait that the changes in `chosen` cause."""
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
    to_first_byte = case.question.metric in (Metric.TTFT, Metric.FIRST_CONTENT)
    if "frontend" in weights and to_first_byte:
        # A busy API server also sends the first byte late.
        weights["delivery"] = weights["frontend"]
    of_adapters = drivers.for_adapters(case)
    adapter_share = sum(of_adapters.get(driver, 0.0) for driver in chosen)
    if adapter_share and adapters_are_loading(case):
        weights["queue_held"] = adapter_share * waits_for_adapter(case)
    elif fetches_kv(case).any():
        of_link = drivers.for_link(case)
        fetched = sum(of_link.get(driver, 0.0) for driver in chosen)
        if fetched:
            weights["queue_held"] = fetched * fetches_kv(case)
    return weights


def shared_with_traffic(case: DiagnosisCase) -> dict[str, float]:
    """Return for each term the share that is not attributed to a restart, because the traffic
    changed at the same time.

    The share is half of the growth that clear changes of the traffic explain.
    """
    sure = [drivers.LOAD] if case.demand.log_fleet > NOISE else []
    if prompts_grew_over_window(case):
        sure.append(drivers.PROMPTS)
    if flooded(case):
        sure.append(drivers.FLOOD)
    if drivers.encoder_added_s(case) > 0:
        sure.append(drivers.ENCODER)
    if log_skew_outside_restarts(case) > NOISE:
        sure.append(drivers.SKEW)
    if log_misses_outside_restarts(case) > NOISE:
        sure.append(drivers.MISSES)
    found = wait_weights(case, *sure) if sure else {}
    return {term: float(np.mean(share)) / 2.0 for term, share in found.items()}


@cached_per_case
def prefill_share(case: DiagnosisCase) -> float:
    """The share of a delay that counts as prefill interference.

    The delay is the time that more traffic adds to decodes.

    The share depends on the ratio (delay by the prefills of other requests) / (delay by their
    decodes). It grows linearly from 0 at a ratio of 1 to 1 at a ratio of 2.
    """
    prefills, decodes = (
        max(case.grown_s(f"decode_others_{work}"), 0.0) for work in ("prefill", "decode")
    )
    if not decodes:
        return 1.0
    return min(max(prefills / decodes - 1.0, 0.0), 1.0)
