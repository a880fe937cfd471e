"""The answer is ready, and the client or the network takes it slowly."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.growth.case import Case
from diagnosis.question import Metric

ID = "network_or_client"
SUMMARY = "the answer is ready, and the client or the network takes it slowly"


def detect(case: Case) -> Claim | None:
    """Claims what lies between the last token and the last byte."""
    delivery = case.grown_s("delivery")
    # To the first byte nobody else can hold a server up: that one is the API server's.
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
            Lever("look at the client, its region and the proxies between: the server was done"),
        ],
    )
