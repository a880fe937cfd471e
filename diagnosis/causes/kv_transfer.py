"""Requests wait until keys and values (KV) arrive from another server or from a KV store."""

import numpy as np

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.held_requests import fetches_kv, held_share, waits_for_adapter
from diagnosis.growth.case import DiagnosisCase

ID = "kv_transfer"
SUMMARY = "requests wait for keys and values from another server or store"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the wait for keys and values from outside the engine."""
    fetching_before, fetching_now = case.mean("fetching_kv")
    fetched = fetches_kv(case)
    fetching = (fetching_now or 0.0) > (fetching_before or 0.0)
    if case.grown_s("queue_held") <= 0 or not (fetching or fetched.any()):
        return None
    own = drivers.for_link(case).get(drivers.LINK, 0.0)
    others = waits_for_adapter(case) + np.nan_to_num(held_share(case, "grammar_s"))
    not_others = np.maximum(1.0 - others, 0.0)
    return Claim(
        cause=ID,
        weights={"queue_held": own * (not_others if fetching else fetched)},
        evidence=[
            Evidence("requests fetching KV, mean", fetching_before, fetching_now),
            Evidence("seconds of transfer, per second", *case.rate("kv_transfer_s_total")),
            Evidence("bytes transferred/s", *case.rate("kv_transfer_bytes_total")),
            Evidence("failed transfers/s", *case.rate("kv_transfer_failures_total")),
        ],
        levers=[
            Lever("check the link between the servers; place prefill and decode closer together"),
            Lever("compute short prompts here instead of fetching them"),
        ],
    )
