from dataclasses import replace

import pytest

from analysis.cause_sentences import first_cause_sentence, rough_share, share_text
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict
from diagnosis.question import Metric, Question, Span

CAUSE = Cause("tenant_flood", 1.0, evidence=(), levers=(), where={"tenant": "acme"})
QUESTION = Question(Metric.TTFT, Span(10, 20), Span(0, 10))
EXPLANATION = Explanation(QUESTION, ExplanationVerdict.INCIDENT, 100, 100, 30, causes=[CAUSE])


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "probably most"), (0.51, "probably most"), (0.5, "a part"), (0.02, "a part")],
)
def test_a_share_by_accounting_is_described_in_words(share: float, words: str) -> None:
    assert rough_share(share) == share_text(share, None, None) == words


def test_a_sentence_never_has_a_percentage_without_an_interval() -> None:
    assert str(first_cause_sentence(EXPLANATION)).startswith(
        "Probably most of the growth of TTFT: one tenant"
    )
    part = replace(EXPLANATION, causes=[replace(CAUSE, share=0.1)])
    assert str(first_cause_sentence(part)).startswith("A part of the growth of TTFT: ")
    replayed = replace(EXPLANATION, causes=[replace(CAUSE, share=0.92, low=0.77, high=1.0)])
    assert str(first_cause_sentence(replayed)).startswith(
        "92% [77% to 100%] of the growth of TTFT: one tenant sends many times its usual traffic"
    )
    assert first_cause_sentence(replace(EXPLANATION, causes=[])) is None
