"""What a range is compared with: the latest stretch before it that no incident overlaps."""

from analysis.baseline import usual_baseline, within
from diagnosis.question import Span
from store.alerting.incidents import IncidentRow

S = 10**9
WINDOW = Span(10_000 * S, 10_900 * S)


def incident(began_s: int, ended_s: int | None, severity: str = "page") -> IncidentRow:
    """An incident of `chat`."""
    return IncidentRow(
        "chat", severity, began_s, began_s, ended_s or began_s, ended_s, began_s, "20", None
    )


def test_without_an_incident_it_is_the_stretch_just_before() -> None:
    """As long as the window."""
    assert usual_baseline(WINDOW, []).span == Span(9_100 * S, 10_000 * S)
    assert usual_baseline(WINDOW, []).before is None


def test_with_an_incident_under_way_it_is_before_that() -> None:
    """The stretch just before lies in it."""
    going_on = incident(9_500, None)
    found = usual_baseline(WINDOW, [going_on])
    assert found.span == Span(8_600 * S, 9_500 * S)
    assert found.before == going_on


def test_one_incident_after_the_other_is_passed_by() -> None:
    """The page's, and the ticket's that began long before it."""
    page, ticket = incident(9_500, None), incident(8_000, 9_000, "ticket")
    found = usual_baseline(WINDOW, [page, ticket])
    assert found.span == Span(7_100 * S, 8_000 * S)
    assert found.before == ticket


def test_what_begins_in_the_window_leaves_the_time_before_it_as_it_is() -> None:
    """As does what ended long before."""
    rows = [incident(10_100, None), incident(1_000, 2_000)]
    assert usual_baseline(WINDOW, rows).span == Span(9_100 * S, 10_000 * S)
    assert within(WINDOW, rows) == (rows[0],)


def test_the_beginning_of_time_is_no_error() -> None:
    """An incident at 0 leaves an empty stretch, and the answer is that data lacks."""
    assert usual_baseline(Span(10 * S, 20 * S), [incident(0, None)]).span.to_unix_ns == 1
