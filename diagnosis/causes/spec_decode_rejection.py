"""Fewer drafted tokens are accepted. So a step yields fewer tokens, and each token takes longer."""

from diagnosis.claim import Claim, Evidence, Lever
from diagnosis.evidence import drivers
from diagnosis.evidence.levers import lever
from diagnosis.evidence.waits import wait_weights
from diagnosis.growth.case import DiagnosisCase

ID = "spec_decode_rejection"
SUMMARY = (
    "fewer drafted tokens are accepted: a step yields fewer tokens, so each token takes longer"
)


def detect(case: DiagnosisCase) -> Claim | None:
    """Claim the additional time per token because fewer drafted tokens are accepted. Also claim the
    wait for slots in the batch.

    If prefills became slower too, only the additional slowdown of decodes is claimed.
    """
    share = drivers.drafts_share(case)
    if not share:
        return None
    prefill, decode = case.slowdowns
    # A request needs more steps for the same tokens, and each step contains other requests' work.
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
                "share of drafted tokens that are accepted",
                *case.ratio("accepted_tokens_total", "draft_tokens_total"),
            ),
            Evidence("slowdown of a token's own work, factor", 1.0, decode),
            Evidence("slowdown of a prompt's own work, factor", 1.0, prefill),
        ],
        levers=[
            lever(
                case,
                "draft fewer tokens",
                "--speculative-config num_speculative_tokens",
                factor=0.5,
            ),
            Lever("disable speculative decoding for this traffic"),
        ],
    )
