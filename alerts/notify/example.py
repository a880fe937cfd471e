"""The message that tests a channel. Pure."""

from alerts.notify.message import IncidentMessage, Transition, WindowPairBurnRates


def example(
    severity: str, transition: Transition, now_s: int, explorer_url: str | None
) -> IncidentMessage:
    """A message about an invented incident of twenty minutes, marked as a test."""
    over = transition is Transition.RESOLVED
    return IncidentMessage(
        transition=transition,
        slo="tailspan-test",
        display_name="An example, not one of your objectives",
        service="tailspan",
        severity=severity,
        statement="Objective: 99 % of requests with ttft_s <= 0.5 over 30d.",
        began_unix_s=now_s - 1_200,
        fired_unix_s=now_s - 300,
        as_of_unix_s=now_s,
        ended_unix_s=now_s if over else None,
        burn=0.4 if over else 21.5,
        window_s=3_600,
        bad=17 if over else 903,
        events=4_200,
        peak_burn=21.5,
        budget_left=0.91,
        budget_spent=0.03,
        exhausted_in_s=None if over else 109_700.0,
        fired_by=() if over else (WindowPairBurnRates(3_600, 300, 14.4, 21.5, 62.3),),
        link=explorer_url,
        test=True,
    )
