"""The answer is ready, and the client or the network takes it slowly."""

from diagnosis.case import Case
from diagnosis.causes.claim import Claim, Evidence, Lever

ID = "network_or_client"
SUMMARY = "the answer is ready, and the client or the network takes it slowly"


def detect(case: Case) -> Claim | None:
    """Claims what lies between the last token and the last byte."""
    delivery = case.grown_s("delivery")
    if delivery <= 0 or delivery <= case.grown_s("frontend"):
        return None
    return Claim(
        cause=ID,
        weights={"delivery": 1.0},
        evidence=[
            Evidence(
                "seconds from last token to last byte, mean over the slow requests",
                *case.of_usual_and_slow("delivery_s"),
            ),
        ],
        levers=[
            Lever("look at the client, its region and the proxies between: the server was done"),
        ],
    )
