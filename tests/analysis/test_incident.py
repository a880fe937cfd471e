from dataclasses import replace
from pathlib import Path
from typing import Any

from alerts.objectives import Objective
from analysis.incident import (
    incident_at,
    leading_incident,
    leading_verdict,
    questions_of,
)
from diagnosis.claim import Lever
from diagnosis.explanation import Cause, Explanation, ExplanationVerdict
from diagnosis.latency.attainment import Attainment
from diagnosis.question import Metric, Question, Span
from telemetry.incidents import IncidentRow
from tests.analysis.test_thresholds import objective

S = 10**9
BEGAN_S = 100_000


def explained(metric: Metric, cause: str | None, slow: int, **changes: Any) -> Explanation:
    """Return the explanation of a window in which `slow` of a thousand requests were slow."""
    causes = []
    if cause is not None:
        levers = [Lever("limit the rate of acme at the gateway")]
        causes = [Cause(cause, 0.8, [], levers, {"tenant": "acme"})]
    known: dict[str, Any] = {
        "question": Question(metric, Span(3_600 * S, 7_200 * S), Span(0, 3_600 * S)),
        "verdict": ExplanationVerdict.INCIDENT,
        "requests": 1_000,
        "baseline_requests": 1_000,
        "needed": 30,
        "baseline_s": 0.1,
        "now_s": 1.0,
        "causes": causes,
        "attainments": [Attainment("chat", 0.5, 0.01, 1_000, 5, 1_000, slow, 9.0)],
    }
    return Explanation(**{**known, **changes})


def test_the_latency_that_broke_the_objective_most_is_chosen() -> None:
    """The factor by which a latency grew does not matter."""
    ttft = explained(Metric.TTFT, "tenant_flood", slow=300)
    tpot = explained(Metric.TPOT, "prefill_interference", slow=50, now_s=9.0)
    for order in ([ttft, tpot], [tpot, ttft]):
        found = leading_verdict(order)
        assert found is not None
        assert (found.first, found.others) == (ttft, (tpot,))
        assert found.sentence == (
            "Probably most of the growth of TTFT: one tenant sends many times its usual traffic,"
            " and the others wait behind it (tenant acme)."
            " Try: limit the rate of acme at the gateway."
        )


def test_a_latency_with_a_cause_is_preferred() -> None:
    found = leading_verdict(
        [explained(Metric.TTFT, None, 300), explained(Metric.TPOT, "preemption", 50)]
    )
    assert found is not None
    assert found.first.question.metric is Metric.TPOT
    nothing = leading_verdict([explained(Metric.TTFT, None, 300)])
    assert nothing is not None
    assert nothing.sentence is None
    assert leading_verdict([]) is None


def incident(began_s: int, ended_s: int | None = None) -> IncidentRow:
    return IncidentRow("chat", "page", began_s, began_s, began_s, ended_s, began_s, "20", None)


def test_an_incident_is_compared_with_the_time_before_it_and_before_others(tmp_path: Path) -> None:
    """The time of an earlier incident is not used as the baseline."""
    chat: Objective = objective(tmp_path, "ttft_s <= 0.5 and tpot_s <= 0.05", "model == 'm'")
    row, earlier = incident(BEGAN_S), incident(BEGAN_S - 900, BEGAN_S - 60)
    asked = questions_of(chat, row, BEGAN_S + 600)
    assert asked.metrics == (Metric.TTFT, Metric.TPOT)
    assert asked.equals == {"model": "m"}
    assert asked.baseline == Span((BEGAN_S - 1_800) * S, BEGAN_S * S)
    passed = questions_of(chat, row, BEGAN_S + 600, [row, earlier]).baseline
    assert passed == Span((BEGAN_S - 2_700) * S, (BEGAN_S - 900) * S)


def test_an_incident_is_found_by_the_time_of_its_alert() -> None:
    """If a page and a ticket overlap, the page is returned, even if only the ticket alerted at the
    given time."""

    def row(severity: str, began_s: int, fired_s: int) -> IncidentRow:
        return IncidentRow("chat", severity, fired_s, began_s, 900, None, fired_s, "20", None)

    page, ticket = row("page", 50, 100), row("ticket", 60, 200)
    assert incident_at([ticket, page], 100) == page
    assert incident_at([ticket, page], 150) == page
    assert incident_at([ticket, page], 200) == page
    assert incident_at([ticket, page], None) == page
    assert incident_at([ticket, page], 10) is None
    assert incident_at([], None) is None
    both = row("ticket", 60, 100), page
    assert incident_at(both, 100) == page


def test_a_page_and_a_ticket_that_overlap_have_one_answer() -> None:
    def row(severity: str, began_s: int, ended_s: int | None, slo: str = "chat") -> IncidentRow:
        return IncidentRow(slo, severity, began_s, began_s, began_s, ended_s, began_s, "20", None)

    ticket = row("ticket", 100, 900)
    first, second, later = row("page", 50, 200), row("page", 500, 600), row("page", 901, None)
    other = row("page", 600, None, slo="code")
    assert leading_incident([later, ticket, second, first, other], ticket) == second
    assert leading_incident([later, ticket, other], ticket) == ticket
    assert leading_incident([first, second, ticket], first) == first, "each page has its own"
    going_on = replace(ticket, ended_unix_s=None)
    assert leading_incident([later, going_on, second, first], going_on) == later
