"""The encoder of images or audio takes longer, or processes more inputs."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray

ID = "encoder"
SUMMARY = "the encoder of images or audio takes more time"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the additional time of the encoder in a request's own prefill.

    Also claim the waits that the encoder causes for other requests."""
    usual_s = case.usual.mean("encoder_s")
    if usual_s is None:
        return None
    weights: dict[str, float | FloatArray] = {}
    share = drivers.encoder_share(case)
    if share.any():
        weights |= dict.fromkeys(drivers.OWN_PREFILL, share)
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
