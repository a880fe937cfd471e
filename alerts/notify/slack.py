"""A message for a Slack incoming webhook, in blocks.

Source: Slack's Block Kit reference: a header of at most 150 characters, at most 10 fields of at
most 2,000; & < > are escaped. `text` is what the phone shows.
"""

import json
from typing import Any

from alerts.notify.channels import Channel, Post
from alerts.notify.message import Message
from alerts.notify.words import facts, title

HEADER = 150
FIELD = 2_000


def render(channel: Channel, message: Message, now_s: int) -> Post:
    """Title, facts, link."""
    said = title(message)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(said, HEADER)}},
        *(
            {
                "type": "section",
                "text": {
                    "type": "mrkdwn",
                    "text": _cut(f"*{about}*  {_escaped(fact)}", FIELD),
                },
            }
            for about, fact in facts(message)
        ),
    ]
    if message.link:
        link = f"<{_escaped(message.link)}|Look at it in the explorer>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
    return Post(json.dumps({"text": _escaped(said), "blocks": blocks}).encode())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
