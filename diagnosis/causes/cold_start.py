"""A server (re)started: requests queue before it is warm, and its first shapes are slow."""

from typing import Final

import numpy as np

from diagnosis.claim import ROOT, Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.restarts import (
    around_starts,
    deploys,
    growth_without_starts,
    new_config_stays_slow,
    restarts,
)
from diagnosis.evidence.waits import shared_with_traffic, wait_weights
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray

ID = "cold_start"
SUMMARY = "a server (re)started: requests queue before it is warm, and its first shapes are slow"

TERMS = (
    *("frontend", "handoff", "queue_seats", "queue_kv", "queue_budget", "queue_step"),
    *("queue_unsplit", "prefill_own", "prefill_others_prefill", "prefill_others_decode"),
    *("prefill_stall", "prefill_unsplit", "prefill_uncached", "decode_own", "decode_stall"),
    *("decode_others_decode", "decode_others_prefill"),
)

_FULLER: Final = 1.1


def detect(case: Case) -> Claim | None:
    """Claims all but the workload's own growth of the requests received around a start."""
    started = restarts(case)
    if new_config_stays_slow(case):  # a deploy's own restart is the deploy's
        brought = deploys(case)
        started = [start for start in started if start not in brought]
    if not started:
        return None
    fresh = np.where(around_starts(case, started), 1.0, 0.0)
    if fresh.mean() < 0.2:
        return None
    felt = max(started, key=lambda start: int(around_starts(case, [start]).sum()))
    anyway = growth_without_starts(case, started)
    by_traffic = shared_with_traffic(case)
    if not _fuller(case):
        # An empty cache is full again before as many run as usual: there are fewer blocks.
        anyway["queue_kv"] = 1.0
    weights: dict[str, float | FloatArray] = {
        term: fresh * (1.0 - max(anyway.get(term, 0.0), by_traffic.get(term, 0.0)))
        for term in TERMS
    }
    for term, share in wait_weights(case, drivers.AWAY).items():
        # The others' adapters and links have its share to carry, too.
        weights[term] = np.maximum(weights.get(term, 0.0), fresh * share)
    return Claim(
        cause=ID,
        weights=weights,
        tier=ROOT,
        evidence=[
            Evidence("starts of the slow requests' servers", 0.0, float(len(started))),
            Evidence("share of slow requests received around one", 0.0, float(fresh.mean())),
            Evidence("requests waiting, mean", *case.mean("waiting")),
        ],
        levers=[
            Lever("keep the server out of the router until it has answered a few requests"),
            Lever("a warm pool, or starting before the old server ends"),
            Lever("load faster", "--load-format runai_streamer"),
        ],
        where={"replica": felt.replica},
    )


def _fuller(case: Case) -> bool:
    """Whether more run at a time than in the baseline, as they do behind a backlog."""
    before, now = case.most("running")
    return before is None or now is None or now > _FULLER * before
