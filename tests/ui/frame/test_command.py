"""Tests that the command shown on a page selects the page's time range in a terminal."""

import shlex
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from cli.main import tailspan
from cli.options.time_range import instant_ns
from telemetry.window import Window
from tests.ui.opening import HOSTILE, Database, Open, markup
from ui.frame.command import command, utc
from ui.frame.pages import PAGES
from ui.frame.view import DEFAULT_RANGE, View
from ui.kit.request_key import RequestKey

S = 10**9
START_S = 1_763_634_000  # 2025-11-20 10:20:00 UTC
WINDOW = Window(START_S * S, (START_S + 1_200) * S)
NOW_NS = WINDOW.to_unix_ns + 3_600 * S
RANGE = {"from": str(START_S), "to": str(START_S + 1_200)}
AMONG = "--from 2025-11-20T10:20:00Z --to 2025-11-20T10:40:00Z"


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (View(), f"tailspan stats {AMONG}"),
        (
            View(page="requests", latency="e2e_s", equals={"tenant": "a b'c"}),
            f"""tailspan requests {AMONG} --where 'tenant=a b'"'"'c' --sort -e2e_s""",
        ),
        (View(page="root-cause"), f"tailspan explain {AMONG} --metric ttft"),
        (
            View(page="root-cause", decide="size", baseline=Window(0, 500_000_000)),
            f"tailspan explain {AMONG} --metric ttft"
            " --baseline 1970-01-01T00:00:00Z/1970-01-01T00:00:00.5Z --by-size",
        ),
        (
            View(page="root-cause", baseline="24h"),
            f"tailspan explain {AMONG} --metric ttft --baseline 24h",
        ),
        # A baseline that overlaps the range is not used.
        (View(page="root-cause", baseline="5m"), f"tailspan explain {AMONG} --metric ttft"),
        (
            View(page="compare", baseline="24h"),
            "tailspan compare --before 2025-11-19T10:20:00Z/2025-11-19T10:40:00Z"
            " --after 2025-11-20T10:20:00Z/2025-11-20T10:40:00Z --metric ttft --quantile p95",
        ),
        (View(page="fleet"), f"tailspan stats {AMONG} --by replica"),
        (View(page="cost", per="model"), f"tailspan cost {AMONG} --by model"),
        (View(page="slos"), "tailspan slo status --at 2025-11-20T10:40:00Z"),
        (
            View(page="compare", latency="tpot_s", quantile="p99", baseline=Window(0, 10**9)),
            "tailspan compare --before 1970-01-01T00:00:00Z/1970-01-01T00:00:01Z"
            " --after 2025-11-20T10:20:00Z/2025-11-20T10:40:00Z --metric tpot --quantile p99",
        ),
        (
            View(
                *(DEFAULT_RANGE, None, None, "tpot_s", {"tenant": "a", "replica": "c"}),
                page="compare",
                split="replica",
                before="blue-0",
                after="green-0",
            ),
            f"tailspan compare {AMONG} --before-where replica=blue-0 --after-where replica=green-0"
            " --metric tpot --quantile p95 --where tenant=a",
        ),
        (
            View(page="outside", region="eu west", equals={"tenant": "acme"}),
            f"tailspan outside {AMONG} --where 'region=eu west'",
        ),
        (View(page="compare", split="replica", before="blue-0"), None),
        (View(page="what-if"), None),
        (
            View(page="what-if", change="max_num_seqs=64,rate=tenant=acme:2x"),
            f"tailspan what-if {AMONG} --set max_num_seqs=64 --rate tenant=acme:2x",
        ),
        (
            View(page="what-if", change="rate=2x", sweep="replicas=1..4"),
            f"tailspan what-if {AMONG} --rate 2x --sweep replicas=1..4",
        ),
        (View(page="request"), None),
        (View(page="request", request="$(x)"), "tailspan explain --request '$(x)'"),
    ],
)
def test_a_page_has_its_command(view: View, wanted: str | None) -> None:
    assert command(view, WINDOW, NOW_NS) == wanted


def test_a_label_is_one_quoted_argument_without_control_characters() -> None:
    found = command(View(equals={"tenant": f"\x1b[31m\n{HOSTILE}"}), WINDOW, NOW_NS)
    assert found is not None
    assert found.isprintable()
    *_, where = shlex.split(found)
    assert where.startswith("tenant=")


def test_an_instant_is_read_as_it_was_written() -> None:
    for at_ns in (0, WINDOW.to_unix_ns, 1_763_634_000_123_456_000):
        assert instant_ns(utc(at_ns)) == at_ns


@pytest.mark.parametrize("key", [each.key for each in PAGES if each.of_a_range])
def test_the_command_has_the_pages_range(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The page shows times in the browser's zone, and the command in UTC."""
    monkeypatch.setattr("ui.frame.app._zone", lambda: ZoneInfo("Asia/Kolkata"))
    test = page(database(incident((START_S - 600) * S)), page=key, tenant="acme", **RANGE)
    shown = markup(test)
    assert "times in Asia/Kolkata, UTC+05:30" in shown
    if key == "what-if":  # without a change, this page shows no command
        return
    words = shlex.split(test.code[-1].value)
    assert "with times in UTC" in shown
    done = CliRunner().invoke(tailspan, words[1:])
    assert done.exit_code in (0, 1), done.output
    if key == "slos":
        assert instant_ns(words[-1]) == WINDOW.to_unix_ns
        return
    if key == "compare":
        ends = [instant_ns(end) for end in words[words.index("--after") + 1].split("/")]
    else:
        ends = [instant_ns(words[words.index(each) + 1]) for each in ("--from", "--to")]
    assert Window(*ends) == WINDOW
    if key == "root-cause":  # the command prints no range, so the numbers of requests are compared
        assert "400 requests now" in shown
        assert "400 requests now, 400 before" in done.output
        return
    assert "2025-11-20 10:20:00 to" in done.output
    assert "10:40:00 UTC" in done.output


def test_a_request_has_its_command(page: Open, database: Database, one_request: Any) -> None:
    row = one_request(1)
    name = RequestKey(row.received_unix_ns, row.trace_id, row.span_id)
    test = page(database([row]), page="request", request=str(name))
    words = shlex.split(test.code[-1].value)
    done = CliRunner().invoke(tailspan, words[1:])
    assert done.exit_code == 0, done.output
    assert row.request_id in done.output
