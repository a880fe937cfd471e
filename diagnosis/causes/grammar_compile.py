"""Requests wait until the grammar of their structured output is compiled."""

import numpy as np

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence.held_requests import held_share
from diagnosis.growth.case import DiagnosisCase
from diagnosis.inputs.requests import Requests

ID = "grammar_compile"
SUMMARY = "requests wait until the grammar of their structured output is compiled"


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the wait until a request's grammar is compiled."""
    share = np.nan_to_num(held_share(case, "grammar_s"))
    if case.grown_s("queue_held") <= 0 or not share.any():
        return None
    return Claim(
        cause=ID,
        weights={"queue_held": share},
        evidence=[
            Evidence(
                "seconds of waiting for a grammar, mean of the slow requests",
                case.usual.mean("grammar_s"),
                case.slow.mean("grammar_s"),
            ),
            Evidence(
                "share of all requests that waited for a grammar",
                _waiting_ratio(case.before),
                _waiting_ratio(case.now),
            ),
        ],
        levers=[
            Lever("send the same schema again instead of a new one; vLLM keeps compiled grammars"),
            Lever("use a simpler schema: fewer alternatives, bounds and nested objects"),
        ],
    )


def _waiting_ratio(requests: Requests) -> float | None:
    waited_s = requests.number("grammar_s")
    known = waited_s[np.isfinite(waited_s)]
    return float((known > 0).mean()) if known.size else None
