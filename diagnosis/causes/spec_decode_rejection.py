"""Fewer drafted tokens are accepted: a step gives fewer tokens, and each takes longer."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import Case

ID = "spec_decode_rejection"
SUMMARY = "fewer drafted tokens are accepted: a step gives fewer tokens, and each takes longer"


def detect(case: Case) -> Claim | None:
    """Claims the slower tokens as far as prefill keeps its pace, and who waits for their places."""
    share = drivers.drafts_share(case)
    if not share:
        return None
    prefill, decode = case.slowdowns
    # As many more steps for the same tokens meet as much more of the others' work in them.
    beyond = 1.0 - ((prefill or 1.0) / (decode or 1.0))
    return Claim(
        cause=ID,
        weights={
            **wait_weights(case, drivers.DRAFTS),
            "decode_own": share,
            "decode_others_decode": max(share, beyond),
            "decode_others_prefill": beyond,
            "decode_stall": beyond,
        },
        evidence=[
            Evidence(
                "drafted tokens accepted, ratio",
                *case.ratio("accepted_tokens_total", "draft_tokens_total"),
            ),
            Evidence("times longer for a token's own work", 1.0, decode),
            Evidence("times longer for a prompt's own work", 1.0, prefill),
        ],
        levers=[
            lever(case, "draft less", "--speculative-config num_speculative_tokens", factor=0.5),
            Lever("turn speculation off for this traffic"),
        ],
    )
