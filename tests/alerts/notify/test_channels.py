import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import alerts.notify
from alerts.notify import alertmanager, pagerduty, slack, webhook
from alerts.notify.channel_sender import RENDER
from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.http_post import ChannelPoster, DeliveryVerdict
from alerts.notify.message import IncidentMessage, Transition
from alerts.secrets import Secret

Make = Callable[..., IncidentMessage]
MakeChannel = Callable[..., Channel]
SCHEMA = json.loads((Path(alerts.notify.__path__[0]) / "webhook.schema.json").read_text())
NOW_S = 1_790_000_030
OVER: dict[str, Any] = {
    "transition": Transition.RESOLVED, "ended_unix_s": 1_790_000_900, "fired_by": (),
}  # fmt: skip


def test_alertmanager_gets_the_labels_of_the_rules(message: Make, channel: MakeChannel) -> None:
    post = alertmanager.render(channel(ReceiverType.ALERTMANAGER), message(), NOW_S)
    assert post.path == "/api/v2/alerts"
    (alert,) = json.loads(post.body)
    assert alert["labels"] == {
        "alertname": "TailspanBudgetBurn", "slo": "chat", "service": "chat", "severity": "page"
    }  # fmt: skip
    assert alert["startsAt"] == "2026-09-21T14:13:20Z"
    assert alert["endsAt"] == "2026-09-21T14:17:50Z"
    assert alert["generatorURL"] == alert["annotations"]["dashboard_url"] == message().link
    assert set(alert["annotations"]) == {"summary", "description", "dashboard_url"}


def test_alertmanager_gets_the_time_of_an_end(message: Make, channel: MakeChannel) -> None:
    post = alertmanager.render(
        channel(ReceiverType.ALERTMANAGER), message(**OVER, link=None), NOW_S
    )
    (alert,) = json.loads(post.body)
    assert alert["labels"]["slo"] == "chat"
    assert alert["endsAt"] == "2026-09-21T14:28:20Z"
    assert "generatorURL" not in alert
    assert "dashboard_url" not in alert["annotations"]


def test_simulated_alerts_have_a_label(message: Make, channel: MakeChannel) -> None:
    post = alertmanager.render(channel(ReceiverType.ALERTMANAGER), message(simulated=True), NOW_S)
    assert json.loads(post.body)[0]["labels"]["simulated"] == "true"


@pytest.mark.parametrize("about", [{}, OVER, {"burn": None, "link": None, "held_back": ()}])
def test_a_webhook_body_matches_its_schema(
    message: Make, channel: MakeChannel, about: dict[str, Any]
) -> None:
    document = json.loads(webhook.render(channel(), message(**about), NOW_S).body)
    jsonschema.validate(document, SCHEMA)
    assert document["version"] == webhook.VERSION
    assert document["id"] == f"chat/page/1790000000/{document['transition']}"
    assert set(document) == set(SCHEMA["properties"]) == set(SCHEMA["required"])


def test_a_webhook_is_signed_with_its_time(message: Make, channel: MakeChannel) -> None:
    """The README documents this check of the signature for receivers."""
    post = webhook.render(channel(), message(), NOW_S)
    parts = dict(part.split("=") for part in post.headers["Tailspan-Signature"].split(","))
    signed = hmac.new(b"the-key", parts["t"].encode() + b"." + post.body, "sha256")
    assert hmac.compare_digest(parts["v1"], signed.hexdigest())
    assert parts["t"] == str(NOW_S)
    assert post.headers["Idempotency-Key"] == "chat/page/1790000000/firing"
    unsigned = webhook.render(channel(ReceiverType.SLACK), message(), NOW_S)
    assert "Tailspan-Signature" not in unsigned.headers


@pytest.mark.parametrize(
    ("slo", "key"),
    [
        ('chat{tenant="acme 1",route="/v1"}', 'chat{tenant="acme 1",route="/v1"}'),
        ('chat{tenant="Łódź 5%"}', 'chat{tenant="%C5%81%C3%B3d%C5%BA 5%25"}'),
        ("hang:東京", "hang:%E6%9D%B1%E4%BA%AC"),
    ],
)
def test_a_webhook_receives_messages_about_any_name(
    receiver: Any, message: Make, channel: MakeChannel, slo: str, key: str
) -> None:
    hook = channel(url=receiver.url)
    answer = ChannelPoster(hook)(webhook.render(hook, message(slo=slo), NOW_S))
    assert answer.verdict is DeliveryVerdict.DELIVERED
    (got,) = receiver.got
    assert got.headers["idempotency-key"] == f"{key}/page/1790000000/firing"
    assert json.loads(got.body)["id"] == f"{slo}/page/1790000000/firing"


def test_messages_for_slack_are_within_its_limits(message: Make, channel: MakeChannel) -> None:
    sent = message(display_name="<!channel> & co", slo="c" * 63, statement="x" * 5_000)
    document = json.loads(slack.render(channel(ReceiverType.SLACK), sent, NOW_S).body)
    header, *blocks = document["blocks"]
    assert header["type"] == "header"
    assert len(header["text"]["text"]) <= 150
    texts = [block["text"]["text"] for block in blocks]
    assert any("‹!channel> & co" in each for each in texts)
    assert {block["text"]["type"] for block in blocks[:-1]} == {"plain_text"}
    assert max(map(len, texts)) <= 2_000
    assert texts[-1].startswith("<https://tailspan.example.org/?last=1h&amp;latency=ttft|")
    assert document["text"].startswith("[page] ccc")


def test_pagerduty_gets_a_trigger_and_its_resolve(message: Make, channel: MakeChannel) -> None:
    of = channel(ReceiverType.PAGERDUTY)
    event = json.loads(pagerduty.render(of, message(), NOW_S).body)
    assert event["event_action"] == "trigger"
    assert event["routing_key"] == "the-key"
    assert event["payload"]["severity"] == "critical"
    assert event["payload"]["timestamp"] == "2026-09-21T14:13:20+00:00"
    assert event["payload"]["custom_details"]["How bad"].startswith("903 of 4,194")
    assert event["links"][0]["href"] == message().link
    over = json.loads(pagerduty.render(of, message(**OVER), NOW_S).body)
    assert over == {
        "routing_key": "the-key", "event_action": "resolve", "dedup_key": event["dedup_key"]
    }  # fmt: skip
    ticket = json.loads(pagerduty.render(of, message(severity="ticket"), NOW_S).body)
    assert ticket["payload"]["severity"] == "warning"
    assert ticket["dedup_key"] != event["dedup_key"]


def test_pagerdutys_limits_are_kept(message: Make, channel: MakeChannel) -> None:
    long, other = message(slo="c" * 2_000), message(slo="c" * 2_001)
    assert len(pagerduty.dedup_key(long)) <= 255
    assert pagerduty.dedup_key(long) != pagerduty.dedup_key(other)
    event = json.loads(pagerduty.render(channel(ReceiverType.PAGERDUTY), long, NOW_S).body)
    assert len(event["payload"]["summary"]) == 1_024


@given(st.text(), st.text(), st.sampled_from(ReceiverType), st.none() | st.text())
def test_any_text_makes_a_json_body_for_every_channel(
    name: str, service: str, kind: ReceiverType, cause: str | None
) -> None:
    sent = IncidentMessage(
        transition=Transition.FIRING,
        slo="chat",
        display_name=name,
        service=service,
        severity="page",
        statement=name,
        began_unix_s=0,
        fired_unix_s=0,
        as_of_unix_s=0,
        likely_cause=cause,
    )
    of = Channel("c", kind, ("page",), Secret("http://127.0.0.1:9"))
    assert json.loads(RENDER[kind](of, sent, NOW_S).body)
