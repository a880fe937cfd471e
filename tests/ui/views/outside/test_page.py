import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from telemetry.probes import Probe
from telemetry.requests import RequestTimeline
from tests.analysis.outside.probed import (
    LENGTH_S,
    NS,
    REFUSED,
    START_S,
    failed,
    probe,
    probes,
    rows,
    store,
)
from tests.ui.opening import HOSTILE, Open, address, markup

RANGE = {"page": "outside", "from": str(START_S), "to": str(START_S + LENGTH_S)}


@pytest.fixture
def url(tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> str:
    found = f"sqlite:///{tmp_path}/probed.db"
    results = list(probes())
    store(found, results, rows(request_row, results))
    return found


def _stored(folder: Path, results: list[Probe]) -> str:
    url = f"sqlite:///{folder}/t.db"
    store(url, results, [])
    return url


def test_regions_are_side_by_side_with_the_finding_first(page: Open, url: str) -> None:
    shown = markup(page(url, **RANGE))
    assert "<b>97.9 %</b> of 480 probes to 2 endpoints from 2 regions" in shown
    assert "Worst: claude from ap-south, 10 of 120 probes failed." in shown
    assert "eu-west: self-hosted chat" in shown
    assert "managed claude" in shown
    for words in (
        REFUSED,
        "−50.0 ms of 60 pairs",
        "−50.0 ms to −50.0 ms",
        "faster",
        "64 %",
        "2030-03-17",
    ):
        assert words in shown


def _many(answering: int, failing: int) -> list[Probe]:
    """Return twenty probes of each endpoint."""
    return [
        (failed if place >= answering else probe)(
            20 * place + number, at_unix_ns=(START_S + 60 * number) * NS, endpoint=f"e{place:02}"
        )
        for place in range(answering + failing)
        for number in range(20)
    ]


def test_endpoints_with_answers_are_drawn_although_many_fail(page: Open, tmp_path: Path) -> None:
    test = page(_stored(tmp_path, _many(2, 12)), **RANGE)
    (waits,) = [each for each in test.get("plotly_chart") if "median whole wait" in each.proto.spec]
    lines = json.loads(waits.proto.spec)["data"]
    assert [each["name"] for each in lines] == ["e00 from eu-west", "e01 from eu-west"]
    assert all(each["customdata"] for each in lines)


def test_places_without_an_answer_are_named_together(page: Open, tmp_path: Path) -> None:
    shown = markup(page(_stored(tmp_path, _many(1, 8)), **RANGE))
    assert (
        "8 pairs of endpoint and region got no answer: e01 from eu-west, e02 from eu-west,"
        " e03 from eu-west and 5" in (shown)
    )
    assert "Worst" not in shown
    shown = markup(page(f"sqlite:///{tmp_path}/t.db", **RANGE, endpoint="e01"))
    assert "got a complete answer.</p>" in shown


def test_answers_of_a_gateways_cache_have_their_own_number(page: Open, tmp_path: Path) -> None:
    results = [
        probe(n, at_unix_ns=(START_S + n) * NS, outcome="cached", first_content_s=0.0012)
        for n in range(12)
    ]
    shown = markup(page(_stored(tmp_path, results), **RANGE))
    assert "Answered by a gateway's cache: 12. The latencies leave them out." in shown
    assert "1.20 ms" not in shown


def test_the_filters_are_part_of_the_address(page: Open, url: str) -> None:
    test = page(url, **RANGE)
    test.selectbox(key="outside_region").set_value("eu-west").run()
    assert address(test)["region"] == "eu-west"
    shown = markup(test)
    assert "240 probes to 2 endpoints from 1 region" in shown
    assert REFUSED not in shown
    again = page(url, **RANGE, region="ap-south", endpoint="claude")
    assert again.selectbox(key="outside_endpoint").value == "claude"
    assert "120 probes to 1 endpoint from 1 region" in markup(again)


def test_without_a_prober_the_page_says_what_to_do(page: Open, tmp_path: Path) -> None:
    test = page(_stored(tmp_path, []), **RANGE)
    assert "No probe has reported yet." in markup(test)
    assert "tailspan probe probes.yaml" in test.code[1].value
    assert "region: eu-west" in test.code[0].value


def test_an_empty_range_is_fixed(page: Open, url: str) -> None:
    test = page(url, page="outside", last="5m", region="eu-west")
    assert "No probes that match the filters in this range." in markup(test)
    test.button("show_range").click().run()
    assert "got a complete answer" in markup(test)
    test = page(url, page="outside", last="5m", region="moon")
    assert "No probe has ever matched these filters." in markup(test)
    test.button("clear_filters").click().run()
    assert "region" not in address(test)


def test_a_live_page_of_rare_probes_is_not_stale(page: Open, tmp_path: Path) -> None:
    """Probes may be an hour apart, so a gap is not reported as missing data."""
    results = [probe(1, at_unix_ns=time.time_ns() - 800 * NS)]
    shown = markup(page(_stored(tmp_path, results), page="outside", last="15m"))
    assert "No data" not in shown
    assert "13 min" in shown


def test_hostile_names_are_text(page: Open, tmp_path: Path) -> None:
    hostile = HOSTILE[:200]
    results = [
        each
        for number in range(80)
        for each in (
            probe(number, at_unix_ns=(START_S + number) * NS, region=hostile, endpoint=hostile),
            failed(
                number + 100,
                at_unix_ns=(START_S + number) * NS,
                region=hostile,
                endpoint=hostile,
                model=hostile,
                error=hostile,
            ),
        )
    ]
    ends = [replace(each, certificate_ends_unix_s=1e300) for each in results]
    test = page(_stored(tmp_path, ends), **RANGE, region=hostile)
    shown = markup(test)
    assert "<script>" not in shown
    assert "80 of 80 probes failed" in shown
    for chart in test.get("plotly_chart"):
        assert "<script>" not in chart.proto.spec


def test_ten_thousand_endpoints_are_a_page(page: Open, tmp_path: Path) -> None:
    results = [
        probe(number, at_unix_ns=(START_S + number % 3_000) * NS, endpoint=f"e{number}")
        for number in range(10_000)
    ]
    shown = markup(page(_stored(tmp_path, results), **RANGE))
    assert "9,940 more rows, with fewer failures, are not shown." in shown
    assert shown.count("<tr>") < 200


def test_probes_that_were_not_sent_have_their_own_sentence(page: Open, tmp_path: Path) -> None:
    results = [failed(1, at_unix_ns=START_S * NS, outcome="over_budget", error_type=None)]
    shown = markup(page(_stored(tmp_path, results), **RANGE))
    assert "<b>No probe was sent</b> to 1 endpoint from 1 region." in shown
    assert "over_budget: not counted" in shown
