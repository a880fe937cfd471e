"""The response is ready, but the client or the network receives it slowly."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.growth.case import DiagnosisCase
from diagnosis.question import Metric

ID = "network_or_client"
SUMMARY = "the response is ready, but the client or the network receives it slowly"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the time between the last token and the last byte."""
    delivery = case.grown_s("delivery")
    # A slow client does not delay the first byte, because only the API server determines when this
    # byte is sent. So E2E is the only latency that contains the delay by the client.
    if (
        case.question.metric is not Metric.E2E
        or delivery <= 0
        or delivery <= case.grown_s("frontend")
    ):
        return None
    return Claim(
        cause=ID,
        weights={"delivery": 1.0},
        evidence=[
            Evidence(
                "seconds from last token to last byte, mean over the slow requests",
                *case.slow_means("delivery_s"),
            ),
        ],
        levers=[
            Lever(
                "check the client, its region and the proxies in between; the server finished in"
                " time"
            ),
        ],
    )
