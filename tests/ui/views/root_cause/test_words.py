from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from diagnosis.causes.registry import SUMMARIES
from diagnosis.claim import Evidence, Lever
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict, RiskRatio
from diagnosis.question import Metric, Question, Span
from ui.views.root_cause import words

S = 10**9
HOSTILE = "<img src=x onerror=alert(1)>\u202e & $x$" + "w" * 500


def explained(**changes: Any) -> Explanation:
    """Return an explanation of an hour with a full KV cache, compared with the hour before."""
    cause = Cause(
        "kv_cache_exhausted",
        0.78,
        evidence=[Evidence("requests waiting, mean", 0.4, 590.2), Evidence("hit rate", None, None)],
        levers=[Lever("store keys and values in 8 bits", "--kv-cache-dtype fp8")],
        where={"tenant": "acme"},
    )
    known: dict[str, Any] = {
        "question": Question(Metric.TTFT, Span(3600 * S, 7200 * S), Span(0, 3600 * S)),
        "verdict": ExplanationVerdict.INCIDENT,
        "requests": 4812,
        "baseline_requests": 4700,
        "needed": 30,
        "tail_share": 0.01,
        "baseline_s": 0.41,
        "now_s": 1.93,
        "onset_unix_ns": 5400 * S,
        "causes": [cause],
        "unexplained": 0.22,
        "dimensions": [RiskRatio("replica", "r2", 4.1, 3.3, 5.0, 1204)],
        "dimensions_tested": 32,
    }
    return Explanation(**{**known, **changes})


def test_the_sentence_has_both_values_and_the_onset() -> None:
    text = words.sentence(explained(), "ttft_s", UTC)
    assert "of the slowest 1 % rose from <b>410 ms</b> to <b>1.93 s</b> at <b>01:30:00</b>" in text
    assert "<b>+1.52 s</b>" in text
    assert "interval" not in text
    assert "4,812 requests now, 4,700 before." in text
    assert "anomaly" not in text


def test_no_change_names_both_stretches() -> None:
    quiet = explained(
        verdict=ExplanationVerdict.NO_INCIDENT, now_s=0.42, causes=[], onset_unix_ns=None
    )
    text = words.sentence(quiet, "ttft_s", UTC)
    assert text.startswith("<b>No change from the previous 1 h:</b>")
    assert "<b>420 ms</b>" in text
    assert "<b>410 ms</b>" in text
    assert "4,812 requests now, 4,700 before." in text
    assert words.compared(quiet, UTC) == (
        "Compared: 01:00:00 to 02:00:00 (1 h) with 00:00:00 to 01:00:00 (1 h)."
    )


def test_too_little_data_names_the_minimum() -> None:
    text = words.sentence(
        explained(verdict=ExplanationVerdict.INSUFFICIENT_DATA, requests=7, baseline_requests=1),
        "tpot_s",
        UTC,
    )
    assert "Too few requests" in text
    assert "<b>7 requests</b>" in text
    assert "<b>1 request</b>" in text
    assert "at least 30 in each" in text


def test_the_first_cause_has_a_share_and_levers() -> None:
    first = explained().causes[0]
    other = replace(first, id="preemption", share=0.1, where={})
    text = words.reason(explained(causes=[first, other]))
    assert "<b>Probably most</b> of the increase: " in text
    assert SUMMARIES["kv_cache_exhausted"] in text
    assert "tenant <b>acme</b>" in text
    assert "<b>Try:</b> store keys and values in 8 bits <code>--kv-cache-dtype fp8</code>" in text
    assert text.count("Try:") == 1
    assert text.index(SUMMARIES["preemption"]) > text.index("Try:")
    assert "Also <b>a part</b>: " in text
    assert "Unexplained: <b>a part</b> of the increase." in text
    assert "%" not in text


def test_a_share_by_replay_is_a_percentage_with_its_interval() -> None:
    first = replace(explained().causes[0], share=0.78, low=0.6, high=0.9)
    text = words.reason(explained(causes=[first], unexplained_low=0.1, unexplained_high=0.4))
    assert "Cause of <b>78 %</b> [60 % to 90 %] of the increase: " in text
    assert "Unexplained: <b>22 %</b> [10 % to 40 %] of the increase." in text


def test_growth_without_a_cause_is_unexplained() -> None:
    assert "No known cause" in words.reason(explained(causes=[], unexplained=1.0))


def test_evidence_is_a_table_of_before_and_now() -> None:
    text = words.evidence(explained().causes[0], with_levers=False)
    assert "<td>requests waiting, mean</td><td>0.4</td><td>590</td>" in text
    assert "hit rate" not in text
    assert "Try:" not in text
    assert "Try:" in words.evidence(explained().causes[0], with_levers=True)
    bare = replace(explained().causes[0], evidence=[])
    assert "no server reported its state" in words.evidence(bare, with_levers=False)


def test_affected_groups_have_ratio_interval_and_number() -> None:
    text = words.hits(explained())
    assert "requests on <b>r2</b>" in text
    assert "<b>4.1×</b>" in text
    assert "3.3× to 5.0×" in text
    assert "1,204" in text
    assert "32 kinds of request were tested" in text
    assert "No kind of request is slow more often than by chance; 32 kinds" in words.hits(
        explained(dimensions=[])
    )


@pytest.mark.parametrize(
    ("dimension", "value", "shown"),
    [
        ("prompt_tokens", "≥ 16384", "with <b>≥ 16384</b> prompt tokens"),
        (
            "tenant & output_tokens",
            "acme & 64–255",
            "<b>acme</b> requests with <b>64–255</b> output tokens",
        ),
        ("tenant & replica", "a & b & r1", "tenant &amp; replica <b>a &amp; b &amp; r1</b>"),
    ],
)
def test_each_kind_of_request_has_a_text(dimension: str, value: str, shown: str) -> None:
    hit = RiskRatio(dimension, value, 2.0, 1.5, 2.5, 10)
    assert shown in words.hits(explained(dimensions=[hit]))


def test_hostile_names_are_text_and_short() -> None:
    cause = replace(
        explained().causes[0],
        evidence=[Evidence(f"requests/s of {HOSTILE}", 1.0, 2.0)],
        levers=[Lever(f"limit {HOSTILE}", HOSTILE)],
        where={"tenant": HOSTILE},
    )
    one = explained(
        causes=[cause],
        dimensions=[RiskRatio("tenant", HOSTILE, 2.0, 1.5, 2.5, 10)],
        contradictions=[f"{HOSTILE} says that 3 waited."],
    )
    for text in (
        words.reason(one),
        words.evidence(cause, with_levers=True),
        words.hits(one),
        words.contradictions(one),
    ):
        assert "<img" not in text
        assert "\u202e" not in text
        assert len(text) < 2_500
