"""The encoder of images or audio takes longer, or processes more inputs."""

from typing import Final

import numpy as np

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.terms import TERM_INDEX
from diagnosis.inputs.requests import FloatArray

ID = "encoder"
SUMMARY = "the encoder of images or audio takes more time"

_OWN: Final = ("prefill_own", "prefill_longer", "prefill_uncached")
"""The terms into which a request's own prefill is divided. They include the encoder's time."""


def detect(case: DiagnosisCase) -> Claim | None:
    """Return the part of the latency's growth that the cause explains (its claim). The claim is the
    additional time of the encoder in a request's own prefill, and the additional waits that the
    encoder's work for other requests causes."""
    usual_s = case.usual.mean("encoder_s")
    if usual_s is None:
        return None
    weights: dict[str, float | FloatArray] = {}
    grown_s = np.nan_to_num(case.slow.number("encoder_s")) - usual_s
    own_s = case.terms[:, [TERM_INDEX[term] for term in _OWN]].sum(axis=1)
    if grown_s.mean() > 0 and own_s.mean() > 0:
        share = np.divide(grown_s, own_s, out=np.zeros_like(own_s), where=own_s > 0)
        weights |= dict.fromkeys(_OWN, np.clip(share, 0.0, 1.0))
    weights |= wait_weights(case, drivers.ENCODER)
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
            Evidence(
                "images and audio clips found in the cache/s", *case.rate("mm_cache_hits_total")
            ),
        ],
        levers=[
            Lever("limit the size and the number of images in a request"),
            Lever("run the encoder on servers of its own"),
        ],
    )
