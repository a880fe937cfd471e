"""The encoder of images or audio takes longer, or processes more inputs."""

from typing import Final

import numpy as np

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence.waits import OF_PREFILL, OF_STEP
from diagnosis.growth.case import Case
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import FloatArray, Requests

ID = "encoder"
SUMMARY = "the encoder of images or audio takes more time"

_OWN: Final = ("prefill_own", "prefill_longer", "prefill_uncached")
"""The terms into which a request's own prefill is divided. They include the encoder's time."""


def detect(case: Case) -> Claim | None:
    """Return a claim on the growth of the encoder's time, of the request itself and of others."""
    usual_s = case.usual.mean("encoder_s")
    if usual_s is None:  # the time before is unknown, not zero
        return None
    weights: dict[str, float | FloatArray] = {}
    grown_s = np.nan_to_num(case.slow.number("encoder_s")) - usual_s
    own_s = case.terms[:, [TERM_INDEX[term] for term in _OWN]].sum(axis=1)
    if grown_s.mean() > 0 and own_s.mean() > 0:
        share = np.divide(grown_s, own_s, out=np.zeros_like(own_s), where=own_s > 0)
        weights |= dict.fromkeys(_OWN, np.clip(share, 0.0, 1.0))
    if others := _share_of_added_prefill(case):
        weights |= dict.fromkeys((*OF_PREFILL, *OF_STEP), others)
    if not weights:
        return None
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence(
                "seconds of the encoder, mean of the slow requests",
                usual_s,
                case.slow.mean("encoder_s"),
            ),
            Evidence("images and audio clips received/s", *case.rate("mm_cache_queries_total")),
            Evidence("of these, found in the cache/s", *case.rate("mm_cache_hits_total")),
        ],
        levers=[
            Lever("limit the size and the number of images in a request"),
            Lever("run the encoder on servers of its own"),
        ],
    )


def _share_of_added_prefill(case: Case) -> float:
    """Return the encoder's share of the prefill work that was added per second. The other requests
    of a step wait for the encoder as for any other prefill work."""
    added_s = [
        _per_second(case.hot_requests, name, case.hot_s)
        - _per_second(case.before, name, case.baseline_observed_s)
        for name in ("encoder_s", "prefill_own_s")
    ]
    return min(added_s[0] / added_s[1], 1.0) if min(added_s) > 0 else 0.0


def _per_second(requests: Requests, name: str, seconds: float) -> float:
    return float(np.nansum(requests.number(name))) / max(seconds, 1.0)
