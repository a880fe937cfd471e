"""Prometheus evaluates the rules on Tailspan itself."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from alerts.openslo.reader import load
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules
from alerts.prometheus.operation_rules import operation_group
from alerts.prometheus.rulefile import render
from tests.alerts.prometheus.rule_test import Run, expect

pytestmark = pytest.mark.real

OPERATING: Final = Path(__file__).parents[3] / "alerts" / "operating"
FIRING: Final = 'count by (alertname, slo, severity) (ALERTS{alertstate="firing",severity!="info"})'
INGEST = "tailspan_collector_items_total"
EVALUATED = "tailspan_evaluation_timestamp_seconds"
PENDING = "tailspan_notification_oldest_pending_seconds"
HEALTHY: Final = {
    f'{INGEST}{{result="stored"}}': "0+600x180",
    f'{INGEST}{{result="unstored"}}': "0x180",
    f'{INGEST}{{result="refused"}}': "0+600x180",
    "tailspan_requests_total": "0+600x180",
    "tailspan_late_requests_total": "0x180",
    EVALUATED: "0+60x180",
    f'{PENDING}{{channel="team"}}': "0x180",
    'tailspan_lease_held{lease="evaluation",instance="a"}': "1x180",
    'tailspan_lease_held{lease="evaluation",instance="b"}': "0x180",
    'tailspan_notification_attempts_total{channel="team",result="dead"}': "0x180",
}
"""A sample per minute for three hours. The windows of a paging alert are at most one hour long."""


def rules() -> str:
    """Return the rules of alerts/operating, with the rules that record their series."""
    groups = yaml.safe_load(tailspan_rules(load([OPERATING]).objectives, EXPLORER_URL))["groups"]
    groups += yaml.safe_load(render([operation_group(EXPLORER_URL)]))["groups"]
    return yaml.safe_dump({"groups": groups})


def fires(promtool: Run, series: dict[str, str], expected: dict[str, list[str]]) -> None:
    """Check that exactly these alerts fire at each time. An alert is a name, or an SLO and a
    severity."""

    def labels(alert: str) -> str:
        slo, _, severity = alert.partition(" ")
        if severity:
            return f'{{alertname="TailspanBudgetBurn",slo="{slo}",severity="{severity}"}}'
        return f'{{alertname="{alert}",severity="ticket"}}'

    samples = [
        expect(FIRING, at, {labels(each): 1 for each in alerts}) for at, alerts in expected.items()
    ]
    promtool(rules(), {**HEALTHY, **series}, samples)


def test_a_healthy_tailspan_has_no_alert(promtool: Run) -> None:
    """Data refused because of a sender's error is not a failure of Tailspan."""
    fires(promtool, {}, {f"{at}m": [] for at in range(0, 180, 20)})


def test_every_rule_can_be_evaluated(promtool: Run) -> None:
    promtool(rules(), HEALTHY, [expect(FIRING, "10m")], every_rule=True)


def test_unstored_items_burn_the_budget_of_ingest(promtool: Run) -> None:
    """2 % of the items are unstored, which is 20 times the budget of 0.1 %."""
    unstored = {f'{INGEST}{{result="unstored"}}': "0x80 0+12x60 720x40"}
    fires(promtool, unstored, {"80m": [], "135m": ["tailspan-ingest page"], "150m": []})


def test_late_requests_burn_the_budget_of_freshness(promtool: Run) -> None:
    late = {"tailspan_late_requests_total": "0x80 0+120x60 7200x40"}
    fires(promtool, late, {"80m": [], "135m": ["tailspan-freshness page"], "150m": []})


def test_an_evaluation_that_stops_pages(promtool: Run) -> None:
    """The evaluation stops after 80 min. The budget of 0.5 % is burnt 14.4 times too fast within 5
    min."""
    stopped = {EVALUATED: "0+60x80 4800x20"}
    fires(promtool, stopped, {"80m": [], "90m": ["tailspan-evaluation page"]})


def test_a_tailspan_that_is_gone_evaluates_nothing(promtool: Run) -> None:
    gone = {EVALUATED: "0+60x80 stale _x20"}
    fires(promtool, gone, {"80m": [], "90m": ["tailspan-evaluation page"]})


def test_another_collector_that_evaluates_is_enough(promtool: Run) -> None:
    """The lease moves to another collector, and the first collector's counter keeps its last
    value."""
    moved = {
        EVALUATED: "_x180",
        f'{EVALUATED}{{instance="a"}}': "0+60x80 4800x100",
        f'{EVALUATED}{{instance="b"}}': "_x80 4860+60x100",
    }
    fires(promtool, moved, {"90m": [], "180m": []})


def test_a_message_that_is_not_delivered_pages(promtool: Run) -> None:
    waiting = {f'{PENDING}{{channel="team"}}': "0x80 0+60x20"}
    fires(promtool, waiting, {"80m": [], "100m": ["tailspan-notification page"]})


def test_a_tailspan_without_channels_has_no_alert(promtool: Run) -> None:
    fires(promtool, {f'{PENDING}{{channel="team"}}': "_x180"}, {"80m": [], "170m": []})


def test_a_lease_without_a_holder_and_a_lost_message_are_tickets(promtool: Run) -> None:
    lost = {
        'tailspan_lease_held{lease="evaluation",instance="a"}': "1x10 0x100",
        'tailspan_notification_attempts_total{channel="team",result="dead"}': "0x20 1x90",
    }
    unheld = "TailspanLeaseUnheld"
    expected = {"9m": [], "13m": [unheld], "30m": [unheld, "TailspanNotificationLost"]}
    fires(promtool, lost, {**expected, "100m": [unheld]})
