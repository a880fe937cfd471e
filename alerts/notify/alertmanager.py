"""Messages for Alertmanager's v2 API.

Like Prometheus, Tailspan sends a firing alert again every minute. Alertmanager resolves the alert
four minutes after the last message. The labels equal those of the generated rules, so that
Alertmanager merges the alerts.

Source: Alertmanager, api/v2/openapi.yaml, `postableAlert`; Prometheus, rules/manager.go
(`ValidUntil`: four times the resend delay).
"""

import json
from datetime import UTC, datetime

from alerts import vocabulary
from alerts.notify.channels import REPEAT_S, Channel, ChannelPost
from alerts.notify.message import IncidentMessage
from alerts.notify.message_text import text, title

VALID_S = 4 * REPEAT_S


def render(channel: Channel, message: IncidentMessage, now_s: int) -> ChannelPost:
    """The request that posts one alert at `now_s`."""
    if message.hang is None:
        labels = {name: value for name, value in message.group.items() if value}
        labels |= message.labels
        labels |= {
            "alertname": vocabulary.ALERT_BURNING,
            vocabulary.SLO: message.objective,
            "service": message.service,
        }
    else:
        labels = {"alertname": vocabulary.ALERT_HUNG, "replica": message.hang.replica}
        if message.hang.model is not None:
            labels["model"] = message.hang.model
    labels["severity"] = message.severity
    if message.simulated:
        labels["simulated"] = "true"
    annotations = {
        **message.annotations,
        "summary": title(message),
        "description": text(message),
    }
    if message.link:
        annotations["dashboard_url"] = message.link
    ended_unix_s = message.ended_unix_s
    alert: dict[str, object] = {
        "labels": labels,
        "annotations": annotations,
        "startsAt": _rfc3339(message.fired_unix_s),
        "endsAt": _rfc3339(now_s + VALID_S if ended_unix_s is None else ended_unix_s),
    }
    if message.link:
        alert["generatorURL"] = message.link
    return ChannelPost(json.dumps([alert]).encode(), "/api/v2/alerts")


def _rfc3339(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat().replace("+00:00", "Z")
