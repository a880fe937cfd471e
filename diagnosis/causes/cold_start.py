"""A server (re)started: requests queue until it is warm, and its first batch shapes are slow."""

from collections.abc import Iterator
from dataclasses import replace
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
from diagnosis.evidence.start_parts import LEVERS, WORDS, largest_part
from diagnosis.evidence.waits import shared_with_traffic, wait_weights
from diagnosis.growth.case import Case
from diagnosis.inputs.requests import FloatArray
from telemetry.cold_starts import ColdStart, is_cold_start_of
from telemetry.starts import EngineStart

ID = "cold_start"
SUMMARY = "a server (re)started: requests queue until it is warm, and its first batches are slow"

TERMS = (
    *("frontend", "handoff", "queue_seats", "queue_kv", "queue_budget", "queue_step"),
    *("queue_unsplit", "prefill_own", "prefill_others_prefill", "prefill_others_decode"),
    *("prefill_stall", "prefill_unsplit", "prefill_uncached", "decode_own", "decode_stall"),
    *("decode_others_decode", "decode_others_prefill"),
)

_FULLER: Final = 1.1


def detect(case: Case) -> Claim | None:
    """Return a claim on the growth of the requests that were received around a start. The growth
    that the workload caused is excluded."""
    started = restarts(case)
    # The restarts of a slow deploy belong to the cause config_change.
    if new_config_stays_slow(case):
        brought = deploys(case)
        started = [start for start in started if start not in brought]
    if not started:
        return None
    fresh = np.where(around_starts(case, started), 1.0, 0.0)
    if fresh.mean() < 0.2:
        return None
    felt = max(started, key=lambda start: int(around_starts(case, [start]).sum()))
    brought_up = _cold_start(case, felt)
    anyway = growth_without_starts(case, started)
    by_traffic = shared_with_traffic(case)
    if not _runs_more_requests(case):
        # After a start, the KV cache is empty. Requests then wait for blocks only if the cache has
        # fewer blocks than before, which is a separate cause.
        anyway["queue_kv"] = 1.0
    weights: dict[str, float | FloatArray] = {
        term: fresh * (1.0 - max(anyway.get(term, 0.0), by_traffic.get(term, 0.0)))
        for term in TERMS
    }
    for term, share in wait_weights(case, drivers.AWAY).items():
        # During a restart, the other replicas serve the requests of the restarted replica, so their
        # adapters and links are busier too.
        weights[term] = np.maximum(weights.get(term, 0.0), fresh * share)
    return Claim(
        cause=ID,
        weights=weights,
        tier=ROOT,
        evidence=[
            Evidence("engine starts at the slow requests' servers", 0.0, float(len(started))),
            Evidence("share of slow requests received around a start", 0.0, float(fresh.mean())),
            Evidence("requests waiting, mean", *case.mean("waiting")),
            *_parts(brought_up),
        ],
        levers=[
            *_levers_of_largest_part(brought_up),
            Lever("keep the server out of the router until it has answered a few requests"),
            Lever("keep a warm pool, or start the new server before the old one ends"),
            *_LOAD_FASTER[: brought_up is None],
        ],
        where={"replica": felt.replica},
    )


def _cold_start(case: Case, start: EngineStart) -> ColdStart | None:
    """Return the parts of a start, or None if the server did not report them."""
    found = (each for each in case.servers.cold_starts if is_cold_start_of(each, start))
    return max(found, key=lambda each: each.at_unix_ns, default=None)


def _parts(start: ColdStart | None) -> Iterator[Evidence]:
    if start is None:
        return
    yield Evidence("seconds until the started server was ready", None, start.length_s)
    if (largest := largest_part(start)) is not None:
        part, part_s = largest
        yield Evidence(f"seconds of its largest part, {WORDS[part]}", None, part_s)


def _levers_of_largest_part(start: ColdStart | None) -> Iterator[Lever]:
    """Yield the levers of a start's largest part, the first with the part's name and seconds."""
    if start is None or (largest := largest_part(start)) is None:
        return
    part, part_s = largest
    first, *others = LEVERS[part]
    share = f"{WORDS[part]} took {part_s:.3g} s of the start's {start.length_s:.3g} s"
    yield replace(first, action=f"{first.action} ({share})")
    yield from others


_LOAD_FASTER: Final = (Lever("load faster", "--load-format runai_streamer"),)
"""The lever if the parts of the start are unknown."""


def _runs_more_requests(case: Case) -> bool:
    """Return whether more requests run concurrently than in the baseline, for example after a
    backlog."""
    before, now = case.p99("running")
    return before is None or now is None or now > _FULLER * before
