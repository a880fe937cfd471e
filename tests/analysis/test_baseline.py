from analysis.baseline import usual_baseline, within
from diagnosis.question import Span
from telemetry.incidents import IncidentRow

S = 10**9
WINDOW = Span(10_000 * S, 10_900 * S)


def incident(began_s: int, ended_s: int | None, severity: str = "page") -> IncidentRow:
    return IncidentRow(
        "chat", severity, began_s, began_s, ended_s or began_s, ended_s, began_s, "20", None
    )


def test_without_an_incident_the_baseline_is_the_previous_range() -> None:
    assert usual_baseline(WINDOW, []).span == Span(9_100 * S, 10_000 * S)
    assert usual_baseline(WINDOW, []).before is None


def test_during_an_incident_the_baseline_is_before_it() -> None:
    going_on = incident(9_500, None)
    found = usual_baseline(WINDOW, [going_on])
    assert found.span == Span(8_600 * S, 9_500 * S)
    assert found.before == going_on


def test_overlapping_incidents_are_all_skipped() -> None:
    page, ticket = incident(9_500, None), incident(8_000, 9_000, "ticket")
    found = usual_baseline(WINDOW, [page, ticket])
    assert found.span == Span(7_100 * S, 8_000 * S)
    assert found.before == ticket


def test_an_incident_that_begins_in_the_window_is_ignored() -> None:
    rows = [incident(10_100, None), incident(1_000, 2_000)]
    assert usual_baseline(WINDOW, rows).span == Span(9_100 * S, 10_000 * S)
    assert within(WINDOW, rows) == (rows[0],)


def test_an_incident_at_time_zero_leaves_an_empty_baseline() -> None:
    assert usual_baseline(Span(10 * S, 20 * S), [incident(0, None)]).span.to_unix_ns == 1
