"""The outputs became longer. Each token takes as long as before, but there are more tokens."""

from typing import Final

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.added_requests import outputs_were_added
from diagnosis.evidence.outgrown_blocks import outgrown
from diagnosis.evidence.waits import OF_BATCH, wait_weights
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray
from diagnosis.question import CONTAIN_TOKENS, Metric

ID = "longer_outputs"
SUMMARY = "the outputs became longer: each token takes as long as before, but there are more tokens"

_OF_OUTPUTS: Final = [
    Lever("cap the output length in the request (max_tokens)"),
    Lever("define the objective on the time per token (TPOT) instead of E2E"),
]
_LEVERS: Final = {
    Metric.FIRST_CONTENT: [
        Lever("limit the reasoning in the request (for example reasoning_effort)"),
        Lever("send requests that need no reasoning without it"),
    ]
}


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the time of the additional tokens, and the wait for slots in the batch. If long
    requests were added and the other requests are as long as before, `decode_batch_growth` claims
    the growth instead."""
    if not case.workload.outputs_grew or outputs_were_added(case):
        return None
    weights: dict[str, float | FloatArray] = {"decode_longer": 1.0}
    if not outgrown(case):  # if longer outputs outgrew the KV cache, `preemption` explains the wait
        weights |= wait_weights(case, drivers.OUTPUTS)
    if case.question.metric in CONTAIN_TOKENS:
        # For the time per token, the detector `decode_batch_growth` explains the delay by a fuller
        # batch.
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
            Evidence(
                "reasoning tokens, mean over the slow requests",
                *case.slow_means("reasoning_tokens"),
            ),
        ],
        levers=_LEVERS.get(case.question.metric, _OF_OUTPUTS),
    )
