"""Fewer drafted tokens are accepted: a step gives fewer tokens, and each takes longer."""

from diagnosis.case import Case
from diagnosis.causes.claim import Claim, Evidence, Lever
from diagnosis.causes.levers import lever

ID = "spec_decode_rejection"
SUMMARY = "fewer drafted tokens are accepted: a step gives fewer tokens, and each takes longer"

_FELL = 0.9


def detect(case: Case) -> Claim | None:
    """Claims the slower tokens, where acceptance fell and prefill keeps its pace."""
    before, now = case.ratio("accepted_tokens_total", "draft_tokens_total")
    if before is None or now is None or now > _FELL * before:
        return None
    prefill, decode = case.pace
    slower = (decode or 1.0) / max(prefill or 1.0, 1.0)
    if slower <= 1.02:
        return None
    beyond = 1.0 - 1.0 / slower
    return Claim(
        cause=ID,
        weights={
            "decode_own": 1.0,
            "decode_others_decode": 1.0,
            "decode_others_prefill": beyond,
            "decode_stall": beyond,
        },
        evidence=[
            Evidence("drafted tokens accepted, ratio", before, now),
            Evidence("times longer for a token's own work", 1.0, decode),
            Evidence("times longer for a prompt's own work", 1.0, prefill),
        ],
        levers=[
            lever(case, "draft less", "--speculative-config num_speculative_tokens", factor=0.5),
            Lever("turn speculation off for this traffic"),
        ],
    )
