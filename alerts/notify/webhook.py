"""Messages for a webhook as JSON, described by `webhook.schema.json`.

With a key, the request is signed: `Tailspan-Signature: t=…,v1=…`. t is the sending time in unix
seconds, with which the receiver can reject a replayed message. v1 is the HMAC-SHA256 in hex of t, a
full stop and the body.
"""

import hmac
import json
import string
from dataclasses import asdict
from typing import Final
from urllib.parse import quote

from alerts.notify.channels import Channel, ChannelPost
from alerts.notify.message import IncidentMessage
from alerts.notify.message_text import text, title

VERSION = 1
"""Increase this when a key is removed or gets another meaning."""
SIGNATURE = "Tailspan-Signature"
_IN_HEADERS: Final = f" {string.punctuation}".replace("%", "")
"""Printable ASCII that the header Idempotency-Key contains as it is. Other characters are
percent-encoded, because a client can choose any name for a tenant."""


def render(channel: Channel, message: IncidentMessage, now_s: int) -> ChannelPost:
    """The request that posts the message. A retry has the same id."""
    key = f"{message.incident}/{message.transition}{'/update' if message.update else ''}"
    document = {
        "version": VERSION,
        "id": key,
        "incident": message.incident,
        "title": title(message),
        "text": text(message),
        **asdict(message),
    }
    body = json.dumps(document, allow_nan=False).encode()
    headers = {"Idempotency-Key": quote(key, safe=_IN_HEADERS)}
    if channel.key is not None:
        headers[SIGNATURE] = signature(channel.key.reveal(), body, now_s)
    return ChannelPost(body, headers=headers)


def signature(key: str, body: bytes, sent_s: int) -> str:
    """The value of the signature header."""
    signed = hmac.new(key.encode(), f"{sent_s}.".encode() + body, "sha256").hexdigest()
    return f"t={sent_s},v1={signed}"
