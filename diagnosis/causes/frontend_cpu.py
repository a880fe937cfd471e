"""The API server's own work (parsing, templates, tokenising) delays requests."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import FloatArray
from diagnosis.question import Metric

ID = "frontend_cpu"
SUMMARY = (
    "the API server is busy with its own work (parsing, templates, tokenising), so requests wait"
)


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the time from receipt until the engine gets the request. For TTFT, also claim the
    delivery time. For other latencies, claim the delivery time only if it grew less than the time
    before the engine."""
    frontend, delivery = case.grown_s("frontend"), case.grown_s("delivery")
    to_first_byte = case.question.metric is Metric.TTFT
    if max(frontend, delivery if to_first_byte else 0.0) <= 0:
        return None
    shares = drivers.for_frontend(case)
    own = shares.get(drivers.FRONTEND, 0.0 if shares else 1.0)
    if not own:
        return None
    weights: dict[str, float | FloatArray] = {"frontend": own}
    if to_first_byte or frontend > delivery:
        weights["delivery"] = own
    return Claim(
        cause=ID,
        weights=weights,
        evidence=[
            Evidence("CPUs that the API server uses", *case.rate("process_cpu_s_total")),
            Evidence(
                "prompt tokens, mean",
                case.demand.prompt_before_tokens,
                case.demand.prompt_now_tokens,
            ),
            Evidence(
                "seconds before the engine, mean over the slow requests",
                *case.slow_means("frontend_s"),
            ),
        ],
        levers=[Lever("run more API servers per engine", "--api-server-count 2")],
    )
