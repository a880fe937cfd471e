"""Messages for a Slack incoming webhook, in blocks.

Input from a tenant is sent as `plain_text`, in which Slack interprets nothing. Phones show the
field `text`. This field cannot be `plain_text`, so & < > are escaped in it.

Source: Slack, "Block Kit" (a header has at most 150 characters, a section at most 3,000),
"Formatting message text" (escaping), and "chat.postMessage" (`parse`, `link_names`,
`unfurl_links`).
"""

import json
from typing import Any

from alerts.notify.channels import Channel, ChannelPost
from alerts.notify.message import IncidentMessage
from alerts.notify.message_text import facts, title

HEADER = 150
FIELD = 2_000


def render(channel: Channel, message: IncidentMessage, now_s: int) -> ChannelPost:
    """The request that posts the title, the facts and the link."""
    heading = title(message)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain_text(heading, HEADER)},
        *(
            {"type": "section", "text": _plain_text(f"{name}: {fact}", FIELD)}
            for name, fact in facts(message)
        ),
    ]
    if message.link:
        link = f"<{_escaped(message.link)}|Open in the explorer>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
    whole = {
        "text": _escaped(heading),
        "blocks": blocks,
        "parse": "none",
        "link_names": False,
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }
    return ChannelPost(json.dumps(whole).encode())


def _plain_text(text: str, longest: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": _truncated(text, longest), "emoji": False}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _truncated(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
