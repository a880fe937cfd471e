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
    f'{INGEST}{{result="stored"}}': "0+600x600",
    f'{INGEST}{{result="unstored"}}': "0x600",
    f'{INGEST}{{result="refused"}}': "0+600x600",
    "tailspan_requests_total": "0+600x600",
    "tailspan_late_requests_total": "0x600",
    EVALUATED: "0+60x600",
    f'{PENDING}{{channel="team"}}': "0x600",
    'tailspan_lease_held{lease="evaluation",instance="a"}': "1x600",
    'tailspan_lease_held{lease="evaluation",instance="b"}': "0x600",
    'tailspan_notification_attempts_total{channel="team",result="dead"}': "0x600",
}
"""Samples of each minute for ten hours."""


def rules() -> str:
    """Return the rules of alerts/operating, with the rules that record their series."""
    groups = yaml.safe_load(tailspan_rules(load([OPERATING]).objectives, EXPLORER_URL))["groups"]
    groups += yaml.safe_load(render([operation_group(EXPLORER_URL)]))["groups"]
    return yaml.safe_dump({"groups": groups})


def fires(promtool: Run, series: dict[str, str], expected: dict[str, list[str]]) -> None:
    """Check that exactly these alerts fire at each time, by name, or by SLO and severity."""

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
    """Items that are refused because of a sender's mistake cause no alert."""
    fires(promtool, {}, {f"{at}m": [] for at in range(0, 600, 60)})


def test_unstored_items_burn_the_budget_of_ingest(promtool: Run) -> None:
    """2 % of the items are unstored: 20 times the budget of 0.1 %."""
    unstored = {f'{INGEST}{{result="unstored"}}': "0x300 0+12x60 720x240"}
    fires(promtool, unstored, {"290m": [], "355m": ["tailspan-ingest page"], "370m": []})


def test_late_requests_burn_the_budget_of_freshness(promtool: Run) -> None:
    late = {"tailspan_late_requests_total": "0x300 0+120x60 7200x240"}
    expected = ["tailspan-freshness page"]
    fires(promtool, late, {"290m": [], "355m": expected, "370m": []})


def test_an_evaluation_that_stops_pages(promtool: Run) -> None:
    """After 5 h, evaluation stops. Within 5 min, the budget of 0.5 % burns 14.4 times too fast."""
    stopped = {EVALUATED: "0+60x300 18000x300"}
    fires(promtool, stopped, {"300m": [], "310m": ["tailspan-evaluation page"]})


def test_a_tailspan_that_is_gone_evaluates_nothing(promtool: Run) -> None:
    gone = {EVALUATED: "0+60x300 stale _x300"}
    fires(promtool, gone, {"300m": [], "310m": ["tailspan-evaluation page"]})


def test_another_collector_that_evaluates_is_enough(promtool: Run) -> None:
    """The lease moves to another collector, and the first one keeps its last value."""
    moved = {
        EVALUATED: "_x600",
        f'{EVALUATED}{{instance="a"}}': "0+60x300 18000x300",
        f'{EVALUATED}{{instance="b"}}': "_x300 18060+60x300",
    }
    fires(promtool, moved, {"310m": [], "400m": []})


def test_a_message_that_is_not_delivered_pages(promtool: Run) -> None:
    waiting = {f'{PENDING}{{channel="team"}}': "0x300 0+60x300"}
    fires(promtool, waiting, {"300m": [], "320m": ["tailspan-notification page"]})


def test_a_tailspan_without_channels_has_no_alert(promtool: Run) -> None:
    none = {f'{PENDING}{{channel="team"}}': "_x600"}
    fires(promtool, none, {"300m": [], "590m": []})


def test_a_lease_without_a_holder_and_a_lost_message_are_tickets(promtool: Run) -> None:
    lost = {
        'tailspan_lease_held{lease="evaluation",instance="a"}': "1x300 0x300",
        'tailspan_notification_attempts_total{channel="team",result="dead"}': "0x400 1x200",
    }
    samples = [
        expect(
            'count by (alertname) (ALERTS{alertstate="firing",severity="ticket"})',
            at,
            {f'{{alertname="{name}"}}': 1 for name in names},
        )
        for at, names in {
            "299m": [],
            "303m": ["TailspanLeaseUnheld"],
            "410m": ["TailspanLeaseUnheld", "TailspanNotificationLost"],
            "480m": ["TailspanLeaseUnheld"],
        }.items()
    ]
    promtool(rules(), {**HEALTHY, **lost}, samples)
