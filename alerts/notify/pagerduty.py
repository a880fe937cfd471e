"""Messages for PagerDuty's Events API v2.

Source: PagerDuty, "Send an alert event": `dedup_key` has at most 255 characters, `summary` at most
1,024.
"""

import json
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from alerts.notify.channels import Channel, ChannelPost
from alerts.notify.message import IncidentMessage, Transition
from alerts.notify.message_text import facts, title

URL: Final = "https://events.pagerduty.com/v2/enqueue"
SEVERITIES: Final = {"page": "critical", "ticket": "warning"}
ACTIONS: Final = {Transition.FIRING: "trigger", Transition.RESOLVED: "resolve"}


def render(channel: Channel, message: IncidentMessage, now_s: int) -> ChannelPost:
    """The request that triggers or resolves an incident."""
    event: dict[str, Any] = {
        "routing_key": channel.key.reveal() if channel.key else "",
        "event_action": ACTIONS[message.transition],
        "dedup_key": dedup_key(message),
    }
    if message.transition is Transition.FIRING:
        event["client"] = "Tailspan"
        event["payload"] = {
            "summary": title(message)[:1024],
            "source": message.service or message.slo,
            "severity": SEVERITIES.get(message.severity, "warning"),
            "timestamp": datetime.fromtimestamp(message.fired_unix_s, UTC).isoformat(),
            "component": message.slo,
            "class": "error budget burn" if message.hang is None else "engine hang",
            "custom_details": dict(facts(message)),
        }
        if message.link:
            event["client_url"] = message.link
            event["links"] = [{"href": message.link, "text": "Open in the explorer"}]
    return ChannelPost(json.dumps(event).encode())


def dedup_key(message: IncidentMessage) -> str:
    """The incident's identifier, or its hash if it is too long."""
    key = f"tailspan/{message.incident}"
    return key if len(key) <= 255 else f"tailspan/{sha256(key.encode()).hexdigest()}"
