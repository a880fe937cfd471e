"""The answers became longer. Each token is as quick as before, but there are more of them."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.waits import OF_BATCH, wait_weights
from diagnosis.growth.case import Case
from diagnosis.question import Metric

ID = "longer_outputs"
SUMMARY = "the answers became longer: each token is as quick as before, but there are more of them"


def detect(case: Case) -> Claim | None:
    """Return a claim on the time of the additional tokens, and on the wait for the places in the
    batch that longer answers occupy."""
    if not case.workload.outputs_grew:
        return None
    weights = {**wait_weights(case, drivers.OUTPUTS), "decode_longer": 1.0}
    if case.question.metric is Metric.E2E:
        # For E2E, the delay by concurrent longer answers belongs to this cause. For the time per
        # token, decode_batch_growth claims this delay.
        weights |= dict.fromkeys(OF_BATCH, drivers.for_seats(case).get(drivers.OUTPUTS, 0.0))
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence("output tokens, median", *case.quantiles("output_tokens", 0.5)),
            Evidence("output tokens, 99th percentile", *case.quantiles("output_tokens", 0.99)),
            Evidence(
                "output tokens, mean over the slow requests",
                *case.slow_means("output_tokens"),
            ),
        ],
        levers=[
            Lever("cap the answer's length in the request (max_tokens)"),
            Lever("set the objective on time per token (TPOT) instead of the whole answer"),
        ],
    )
