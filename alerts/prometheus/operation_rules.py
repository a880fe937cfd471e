"""Rules on the operation of Tailspan itself: evaluation, notifications and leases.

The recorded series are 1 or 0. The objectives in `alerts/operating/` use them. While Tailspan does
not run, the series for the evaluation is 0.
"""

from typing import Final

from alerts.prometheus.rulefile import AlertingRule, RecordingRule, RuleGroup, label_text, literal

EVALUATION_ON_TIME: Final = "operation:tailspan_evaluation_on_time:bool"
NOTIFICATION_ON_TIME: Final = "operation:tailspan_notification_on_time:bool"
LAG_S: Final = 60
"""Maximum age of the last evaluation in seconds: four evaluation intervals. If a collector fails, a
second collector takes over within 18 s."""
DELAY_S: Final = 60
"""Maximum age of a pending notification in seconds. The first retry is due after 5 s
(`alerts/notify/retry.py`), so several attempts have failed by then."""


def operation_group(explorer_url: str) -> RuleGroup:
    """Rules on Tailspan's own operation."""
    link = f"{literal(explorer_url.rstrip('/'))}/?last=1h"

    def ticket(name: str, expr: str, for_: str, summary: str, do: str) -> AlertingRule:
        return AlertingRule(
            name,
            expr,
            {"severity": "ticket"},
            {"summary": summary, "description": do, "dashboard_url": link},
            for_=for_,
        )

    lease, channel = label_text("lease"), label_text("channel")
    return RuleGroup(
        "tailspan-operation",
        "15s",
        [
            RecordingRule(
                EVALUATION_ON_TIME,
                f"time() - max(tailspan_evaluation_timestamp_seconds) <= bool {LAG_S}"
                " or on () vector(0)",
            ),
            RecordingRule(
                NOTIFICATION_ON_TIME,
                f"max(tailspan_notification_oldest_pending_seconds) <= bool {DELAY_S}",
            ),
            ticket(
                "TailspanLeaseUnheld",
                # Another collector takes an expired lease within 18 s.
                "sum by (lease) (tailspan_lease_held) != 1",
                "1m",
                f"{{{{ $value }}}} collectors hold the lease {lease}; exactly one should",
                "If it is 0, no collector does this task (evaluation, notification or rollups):"
                " check that the collectors reach the database (`tailspan doctor`). If it is 2 or"
                " more, this Prometheus probably scrapes collectors of different databases.",
            ),
            ticket(
                "TailspanNotificationLost",
                'sum by (channel) (increase(tailspan_notification_attempts_total{result="dead"}'
                "[1h])) > 0.5",
                "0s",
                f"Tailspan could not deliver messages to {channel}",
                'In the last hour, Tailspan gave up {{ $value | printf "%.0f" }} messages.'
                " `tailspan slo status` prints the reason for each of them. `tailspan slo notify"
                " notify.yaml --test` sends a test message.",
            ),
        ],
    )
