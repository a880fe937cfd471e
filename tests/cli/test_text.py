import json
from collections.abc import Callable

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from analysis.explain import ExplainAnswer
from analysis.incident import IncidentVerdict
from cli.commands.explain_incident import IncidentAnswer, verdict_lines
from cli.render.explanation import cause_lines, of_answer
from cli.render.text import (
    UNKNOWN,
    WIDEST,
    count,
    label,
    percent,
    rate,
    seconds,
    span,
    table,
    usd,
)
from diagnosis.claim import Evidence, Lever
from diagnosis.explanation import (
    Cause,
    Explanation,
    ExplanationVerdict,
    NetworkGrowth,
    RiskRatio,
)
from diagnosis.latency.attainment import Attainment
from diagnosis.question import Metric, Question, Span
from telemetry.incidents import IncidentRow
from telemetry.window import Window

S = 1_000_000_000
NOW = 1_763_634_000 * S  # 2025-11-20 10:20:00 UTC


@pytest.mark.parametrize(
    ("value_s", "shown"),
    [
        (None, "-"),
        (0.0, "0.0 ms"),
        (0.00042, "0.4 ms"),
        (0.0123, "12.3 ms"),
        (0.09949, "99.5 ms"),
        (0.0996, "100 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (1.234, "1.23 s"),
        (9.996, "10.0 s"),
        (1234.56, "1,234.6 s"),
        (-0.012, "-12.0 ms"),
    ],
)
def test_a_duration_is_in_ms_under_a_second(value_s: float | None, shown: str) -> None:
    assert seconds(value_s) == shown


def test_unknown_values_are_not_shown_as_0() -> None:
    assert count(None) == rate(None) == label(None) == seconds(None) == UNKNOWN
    assert count(0) == rate(0.0) == "0"
    assert (count(1234), rate(1234.5), rate(0.5556)) == ("1,234", "1,234", "0.556")


@given(st.text())
def test_a_label_cannot_control_or_fill_the_terminal(text: str) -> None:
    """Clients choose labels."""
    shown = label(text)
    assert shown.isprintable()
    assert len(shown) <= WIDEST


def test_a_long_label_ends_with_an_ellipsis() -> None:
    assert label("x" * 1_000_000) == "x" * (WIDEST - 1) + "…"
    assert label("x" * WIDEST) == "x" * WIDEST
    assert label("a\x1b[2Jb\n") == r"a\x1b[2Jb\n"


def test_columns_are_aligned_and_the_wholly_unknown_left_out() -> None:
    rows = [["a", "-", "1 ms", "-"], ["longer", "-", "100 ms", "7"]]
    assert table(["name", "lora", "queue", "n"], rows, left=2) == [
        "name     queue  n",
        "a         1 ms  -",
        "longer  100 ms  7",
    ]
    assert table(["name", "lora"], [["a", "-"]], left=2, keep=2) == ["name  lora", "a     -"]


@pytest.mark.parametrize(
    ("value_usd", "shown"),
    [
        (None, "-"),
        (0.0, "$0"),
        (1e-12, "$0"),
        (0.0000601, "$0.0000601"),
        (0.12345, "$0.123"),
        (0.996, "$1.00"),
        (12.345, "$12.35"),
        (-0.5, "-$0.500"),
        (123_456.7, "$123,457"),
    ],
)
def test_dollars_keep_three_digits_below_one_and_cents_above(
    value_usd: float | None, shown: str
) -> None:
    assert usd(value_usd) == shown


@pytest.mark.parametrize(
    ("ratio", "digits", "shown"),
    [
        (None, 1, "-"),
        (1.0, 1, "100.0%"),
        (0.99996, 1, "99.996%"),
        (0.99996, 2, "99.996%"),
        (0.00004, 2, "0.004%"),
        (0.975, 2, "97.50%"),
        (0.5, 1, "50.0%"),
    ],
)
def test_only_the_whole_is_100_percent(ratio: float | None, digits: int, shown: str) -> None:
    assert percent(ratio, digits) == shown


HOSTILE = "\x1b[2J\x1b]0;owned\x07a\nb\r\u202e\u2028\x9b31m"


@pytest.mark.parametrize(
    "words",
    [
        ("requests",),
        ("stats", "--by", "tenant,model,route,replica"),
        ("explain",),
        ("explain", "--request", "chatcmpl-799"),
        ("cost", "--by", "tenant"),
        ("config",),
        ("what-if", "--set", "max_num_seqs=8"),
        ("advise",),
    ],
)
def test_a_tenants_name_moves_no_cursor(
    queued: Callable[..., None], run: Callable[..., Result], words: tuple[str, ...]
) -> None:
    labels = dict.fromkeys(("tenant", "model", "route", "replica", "region", "lora"), HOSTILE)
    queued(2.0, **labels)
    result = run(*words, window=words[0] != "config")
    shown = (result.stdout + result.stderr).replace("\n", "")
    assert shown
    assert [each for each in shown if not each.isprintable()] == []


def test_a_tenants_name_is_one_line_of_json(
    queued: Callable[..., None], run: Callable[..., Result]
) -> None:
    queued(2.0, tenant=HOSTILE)
    lines = run("requests", "--format", "json", "--limit", "3").stdout.splitlines()
    assert [json.loads(line)["tenant"] for line in lines] == [HOSTILE] * 3


def test_a_window_is_shown_with_its_length_and_zone() -> None:
    assert span(Window(NOW - 900 * S, NOW)) == "2025-11-20 10:05:00 to 10:20:00 UTC (15m)"
    assert "2025-11-18 10:20:00 to 2025-11-20 10:20:00 UTC (2d)" in span(
        Window(NOW - 172_800 * S, NOW)
    )


def test_a_cause_moves_no_cursor_and_forges_no_line() -> None:
    """The texts of a cause contain a tenant's name with control characters."""
    cause = Cause(
        id="tenant_flood",
        share=1.0,
        evidence=[Evidence(f"requests/s of {HOSTILE}", 1.0, 9.0)],
        levers=[Lever(f"limit the rate of {HOSTILE} at the gateway")],
        where={"tenant": HOSTILE},
    )
    lines = list(cause_lines(cause, "TTFT"))
    assert any("requests/s of" in line for line in lines)
    questions = [Question(each, Span(10, 20), Span(0, 10)) for each in (Metric.TTFT, Metric.E2E)]
    first, second = (
        Explanation(
            question,
            ExplanationVerdict.INSUFFICIENT_DATA,
            *(9, 9, 30),
            causes=[cause],
            contradictions=[f"{HOSTILE} reports 9 waiting requests"],
        )
        for question in questions
    )
    incident = IncidentRow("chat", "page", 10, 12, 20, 20, 12, "20", None)
    verdict = IncidentVerdict(first, (second,))
    incident_lines = list(verdict_lines(IncidentAnswer(incident, verdict, first)))
    assert [line.split()[0] for line in incident_lines] == ["Verdict:", "Also:"]
    notes = list(of_answer(ExplainAnswer(first)))
    assert notes[-1].startswith("Note: ")
    assert all(line.isprintable() for line in (*lines, *incident_lines, *notes))


def test_a_probers_region_moves_no_cursor() -> None:
    growth = NetworkGrowth(HOSTILE, 9, 9, 0.1, (0.1, 0.1), 0.9, (0.8, 1.0))
    why = Explanation(
        Question(Metric.TTFT, Span(10, 20), Span(0, 10)),
        ExplanationVerdict.NO_INCIDENT,
        *(100, 100, 30),
        network=[growth],
    )
    lines = list(of_answer(ExplainAnswer(why)))
    assert any("Outside the servers" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_groups_that_are_not_listed_had_a_result() -> None:
    hits = [RiskRatio("tenant", f"t{n}", 9.0 - n, 2.0, 12.0, 100) for n in range(8)]
    why = Explanation(
        Question(Metric.TTFT, Span(10, 20), Span(0, 10)),
        ExplanationVerdict.NO_INCIDENT,
        *(100, 100, 30),
        dimensions=hits,
        dimensions_tested=20,
    )
    shown = list(of_answer(ExplainAnswer(why)))
    assert "Groups with smaller factors that are not listed: 2." in shown
    assert "12 other groups of requests were tested without a result." in shown


def test_a_share_near_the_whole_keeps_its_digits() -> None:
    """The target of 99.95 % allows 0.05 %, and neither number may be rounded to 0.1 or 100 %."""
    question = Question(Metric.TTFT, Span(10, 20), Span(0, 10))
    missed = Attainment("chat", 0.5, 0.0005, 20_000, 2, 20_000, 40, 9.0)
    why = Explanation(
        question, ExplanationVerdict.NO_INCIDENT, *(20_000, 20_000, 30), attainments=[missed]
    )
    shown = "\n".join(of_answer(ExplainAnswer(why)))
    assert "99.8% of 20,000 requests within 500 ms, before 99.99%; the target is 99.95%" in shown
    assert "0.2% of requests take longer than 500 ms; chat allows 0.05%" in shown
