"""A message for anyone who takes JSON: `webhook.schema.json` says what is in it.

Signed where a key is given: `Tailspan-Signature: t=…,v1=…`, of which v1 is the HMAC-SHA256, in
hex, of `t`, a full stop and the body; t is when it was sent, in unix seconds, so that a
recorded message cannot be sent again later.
"""

import hmac
import json
from dataclasses import asdict

from alerts.notify.channels import Channel, Post
from alerts.notify.message import Message
from alerts.notify.message_text import text, title

VERSION = 1
"""Raised when something is taken away or changes its meaning; additions keep it."""
SIGNATURE = "Tailspan-Signature"


def render(channel: Channel, message: Message, now_s: int) -> Post:
    """The whole message, its words, and an id that is the same however often it is sent."""
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
    headers = {"Idempotency-Key": key}
    if channel.key is not None:
        headers[SIGNATURE] = signature(channel.key.reveal(), body, now_s)
    return Post(body, headers=headers)


def signature(key: str, body: bytes, sent_s: int) -> str:
    """The header's value."""
    signed = hmac.new(key.encode(), f"{sent_s}.".encode() + body, "sha256").hexdigest()
    return f"t={sent_s},v1={signed}"
