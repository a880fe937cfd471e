import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from alerts.notify.channel_sender import RENDER
from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.message import IncidentMessage, Transition
from alerts.notify.message_text import facts, length, text, title
from alerts.secrets import Secret

Make = Callable[..., IncidentMessage]
LINK = "https://tailspan.example.org/?last=1h&amp;latency=ttft"
FACTS = ("What", "Likely cause")
OVER = {"transition": Transition.RESOLVED, "ended_unix_s": 1_790_001_440, "fired_by": ()}


def test_the_title_has_the_objective_and_the_burn_rate(message: Make) -> None:
    shown = title(message())
    assert shown == "[page] chat: the error budget burns 21.5 times too fast"
    assert len(shown) < 80
    assert title(message(burn=None)) == "[page] chat: the error budget burns too fast"
    over = title(message(**OVER))
    assert over == "[over] chat: the error budget no longer burns too fast, after 34 min"


def test_tests_and_simulations_are_marked_first(message: Make) -> None:
    assert title(message(test=True)).startswith("[test] [page] chat")
    assert title(message(simulated=True)).startswith("[simulated] [page] chat")
    assert facts(message(simulated=True))[0][0] == "Simulated"
    assert facts(message(test=True))[0][0] == "Test"


def test_the_facts_of_a_page(message: Make) -> None:
    assert text(message()).splitlines() == [
        "What: Chat answers start in 500 ms. Objective: 99 % of requests with ttft_s <= 0.5"
        " over 30d.",
        "How bad: 903 of 4,194 requests in the last 1h missed the objective.",
        "Budget: This incident has spent 3.1%; 87.2% is left; at this pace it is spent in 29 h.",
        "Since: 2026-09-21 14:03 UTC; alerted 2026-09-21 14:13 UTC.",
        "Fired by: the last 1h and 5m burn at 21.5 and 62.3, alerting above 14.4",
        "Held back: the last 6h and 30m burn at 9.9 and 40.0, alerting above 6, counting began "
        "too recently",
        "Explorer: https://tailspan.example.org/?last=1h&latency=ttft",
    ]


def test_the_facts_of_an_end(message: Make) -> None:
    found = dict(facts(message(**OVER)))
    assert found["Since"] == "2026-09-21 14:03 UTC, until 2026-09-21 14:37 UTC."
    assert "the peak burn rate was 21.5" in found["How bad"]
    assert "spent in" not in found["Budget"]
    assert "Fired by" not in found


def test_unknown_values_are_omitted(message: Make) -> None:
    unknown = message(
        bad=None, events=None, budget_left=None, budget_spent=None, peak_burn=None, link=None
    )
    assert {"How bad", "Budget", "Likely cause"}.isdisjoint(dict(facts(unknown)))
    assert "Explorer" not in text(unknown)
    cause = "One tenant sends very long prompts."
    assert dict(facts(message(likely_cause=cause)))["Likely cause"] == cause


def test_an_overspent_budget_is_reported(message: Make) -> None:
    budget = dict(facts(message(budget_left=-0.25, exhausted_in_s=0.0)))["Budget"]
    assert budget.endswith("overspent by 25.0%.")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_199, "120 min"), (7_200, "2.0 h"),
     (100_000, "28 h"), (200_000, "2.3 d"), (30 * 86_400, "30 d")],
)  # fmt: skip
def test_durations_have_about_two_digits(seconds: float, shown: str) -> None:
    assert length(seconds) == shown


@pytest.mark.parametrize(
    "hostile",
    [
        "@channel @here @Everyone",
        "<!here> <!channel|x> <@U123> <#C1> <https://evil.example|a bill>",
        "[a bill](https://evil.example) ![x](http://evil.example/a.png)",
        "https://evil.example/?q=secret",
        "a\nSeverity: none\r\n\x1b[31m\u202e\x00",
    ],
)
@pytest.mark.parametrize("kind", ["slack", "pagerduty", "alertmanager", "webhook"])
def test_a_tenants_text_stays_text_in_every_channel(message: Make, kind: str, hostile: str) -> None:
    """A tenant's name cannot add a mention, a link or a line, or move the terminal's cursor."""
    tampered = message(likely_cause=f"tenant {hostile} sends more", display_name=hostile)
    post = RENDER[ReceiverType(kind)](
        Channel("c", ReceiverType(kind), ("page",), Secret("http://x")), tampered, 0
    )
    document = json.loads(post.body)
    for place, each in strings(document):
        assert all(character.isprintable() or character == "\n" for character in each)
        for line in each.split("\n"):
            assert not line.startswith("Severity")
        if place[-1] in ("text", "title", "summary", "description", *FACTS):
            for mark in ("@channel", "@here", "@Everyone", "<!", "<@", "<#", "<http", "]("):
                assert mark not in each.replace(f"<{LINK}|", "")
            assert "evil.example/" not in each or "https://evil" not in each
    if kind == "slack":
        types = {each["text"]["type"] for each in document["blocks"][:-1]}
        assert types == {"plain_text"}
        assert (document["parse"], document["link_names"]) == ("none", False)


def strings(node: Any, place: tuple[str, ...] = ("",)) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(node, str):
        yield place, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from strings(value, (*place, key))
    elif isinstance(node, list):
        for value in node:
            yield from strings(value, place)
