"""Compute the share of each term that engine starts explain, for slow requests around the starts.

Pure."""

from collections.abc import Sequence
from math import log
from typing import Final

import numpy as np

from diagnosis.evidence import drivers
from diagnosis.evidence.restarts import MAX_WARM_S, around_starts, growth_without_starts
from diagnosis.evidence.waits import shared_with_traffic, wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import NOISE
from diagnosis.inputs.requests import FloatArray
from telemetry.starts import EngineStart

TERMS: Final = (
    *("frontend", "handoff", "queue_seats", "queue_kv", "queue_budget", "queue_step"),
    *("queue_unsplit", "prefill_own", "prefill_others_prefill", "prefill_others_decode"),
    *("prefill_stall", "prefill_unsplit", "prefill_uncached", "decode_own", "decode_stall"),
    *("decode_others_decode", "decode_others_prefill"),
)


def start_weights(
    case: DiagnosisCase, started: Sequence[EngineStart]
) -> dict[str, float | FloatArray]:
    """The share of each term's growth that the starts explain.

    The growth that the changed traffic caused is excluded. The result is empty if too few slow
    requests were received around the starts.
    """
    fresh = np.where(around_starts(case, started), 1.0, 0.0)
    # Stalls can occur long after a start, because the first step of each batch shape is slow.
    first_shapes = np.where(around_starts(case, started, warm_s=MAX_WARM_S), 1.0, 0.0)
    if not started or not first_shapes.any():
        return {}
    anyway = growth_without_starts(case, started)
    by_traffic = shared_with_traffic(case)
    if not _runs_more_requests(case):
        # If no more requests run than before, the wait for KV blocks grew only because the cache
        # has fewer blocks. The loss of blocks is a separate cause, so the starts get no share of
        # this wait.
        anyway["queue_kv"] = 1.0
    weights: dict[str, float | FloatArray] = {
        term: (first_shapes if term.endswith("_stall") else fresh)
        * (1.0 - max(anyway.get(term, 0.0), by_traffic.get(term, 0.0)))
        for term in TERMS
    }
    for term, share in wait_weights(case, drivers.AWAY).items():
        # During the restart, the other replicas also serve the requests of this replica. So
        # requests to the other replicas wait longer too, for example for KV transfers.
        weights[term] = np.maximum(weights.get(term, 0.0), fresh * share)
    return weights


def _runs_more_requests(case: DiagnosisCase) -> bool:
    before, now = case.p99("running")
    return not before or not now or log(now / before) > NOISE
