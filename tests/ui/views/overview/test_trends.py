import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from analysis.counted_requests import CountedAs
from analysis.over_time import trends
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from telemetry.requests import Outcome
from telemetry.window import Window
from tests.store.joined.rows import START_NS as JOINED_START_NS
from tests.store.joined.test_user_requests import STATED, pair, store_rows
from ui.kit import colours
from ui.kit.downloads import csv_of
from ui.views.overview import charts

NS = 10**9
HOUR_NS = 3_600 * NS
START_NS = 1_763_600_400 * NS
WINDOW = Window(START_NS, START_NS + 600 * NS)


@pytest.fixture
def opened(database: Callable[..., str]) -> Iterator[Callable[..., Engine]]:
    engines: list[Engine] = []

    def make(rows: Any) -> Engine:
        engines.append(open_database(database(rows)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.dispose()


def test_rollups_equal_the_rows(
    opened: Callable[..., Engine], fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened(fleet(3000, START_NS, 600)[0])
    minute_ns = 60 * NS
    rows = trends.read(engine, WINDOW, {}, minute_ns)
    build_marked(engine, time.time_ns() // NS)
    monkeypatch.setattr(trends, "MAX_READ", 10)
    rolled = trends.read(engine, WINDOW, {}, minute_ns)
    assert rolled.rolled
    assert not rows.rolled
    assert rows.number == rolled.number == 3000
    for outcome in Outcome:
        assert rows.outcomes[outcome].tolist() == rolled.outcomes[outcome].tolist()
    for name in trends.LATENCIES:
        exact = rows.percentiles[name].series["p95"].value_s
        within = rolled.percentiles[name].series["p95"].value_s
        assert np.allclose(exact, within, rtol=0.01, equal_nan=True)


@pytest.mark.parametrize("width_s", [60, 300])
@pytest.mark.parametrize(("from_s", "to_s"), [(0, 600), (31, 571), (1, 541), (239, 599)])
def test_a_steady_rate_is_the_same_in_each_bin(
    opened: Callable[..., Engine],
    one_request: Any,
    monkeypatch: pytest.MonkeyPatch,
    width_s: int,
    from_s: int,
    to_s: int,
) -> None:
    """Rollups count the whole first and last minute of a range."""
    engine = opened(
        [one_request(n, received_unix_ns=START_NS + (2 * n + 1) * NS) for n in range(-60, 400)]
    )
    build_marked(engine, time.time_ns() // NS)
    monkeypatch.setattr(trends, "MAX_READ", 10)
    window = Window(START_NS + from_s * NS, START_NS + to_s * NS)
    rolled = trends.read(engine, window, {}, width_s * NS)
    assert rolled.rolled
    assert rolled.ended(*Outcome) / rolled.seen_s == pytest.approx(np.full(rolled.bins.count, 0.5))


def test_the_bin_of_the_current_minute_ends_now(
    opened: Callable[..., Engine], one_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = START_NS + 570 * NS
    engine = opened([one_request(n, received_unix_ns=START_NS + n * 10 * NS) for n in range(57)])
    build_marked(engine, START_NS // NS + 3_600)
    monkeypatch.setattr(trends, "MAX_READ", 10)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    live = trends.read(engine, Window(START_NS, now_ns - 5 * NS), {}, 60 * NS)
    assert live.rolled
    assert live.seen_s[-1] == 30


def test_the_baseline_is_yesterday(opened: Callable[..., Engine], one_request: Any) -> None:
    def requests(from_ns: int, first: int, number: int = 60) -> list[Any]:
        return [
            one_request(first + n, received_unix_ns=from_ns + n * 10 * NS) for n in range(number)
        ]

    today, before = requests(START_NS, 0), requests(START_NS - 600 * NS, 100)
    yesterday = requests(START_NS - 24 * HOUR_NS, 200)
    for rows, expected in (
        ([*today, *before, *yesterday], START_NS - 24 * HOUR_NS),
        ([*today, *before, *yesterday[:3]], START_NS - 600 * NS),
        ([*today, *before], START_NS - 600 * NS),
        (today, None),
    ):
        engine = opened(rows)
        now = trends.read(engine, WINDOW, {})
        found = trends.before(engine, now, {})
        assert (found and found.window.from_unix_ns) == expected
    asked = Window(START_NS, START_NS + 60 * NS)
    found = trends.before(engine, now, {}, asked)
    assert found is not None
    assert found.window == asked
    engine = opened([*today, *before])
    found = trends.before(engine, now, {}, quiet_until_ns=START_NS - 300 * NS)
    assert found is not None
    assert found.window == Window(START_NS - 900 * NS, START_NS - 300 * NS)


def test_the_usual_band_needs_enough_bins(opened: Callable[..., Engine], fleet: Any) -> None:
    engine = opened(fleet(3000, START_NS, 600)[0])
    usual = trends.read(engine, WINDOW, {}, 60 * NS).usual("ttft_s", "p50")
    assert usual is not None
    assert 0 < usual[0] < usual[1]
    assert trends.read(engine, WINDOW, {}, 300 * NS).usual("ttft_s", "p50") is None


def test_charts_show_usual_target_and_burn(opened: Callable[..., Engine], fleet: Any) -> None:
    rows = fleet(3000, START_NS, 600)[0] + fleet(3000, START_NS - 600 * NS, 600, seed=8)[0]
    engine = opened(rows)
    now = trends.read(engine, WINDOW, {}, 120 * NS)
    before = trends.before(engine, now, {})
    burned = [(START_NS + 60 * NS, START_NS + 9_999 * NS), (0, NS)]
    figure = charts.latency(now, before, "ttft_s", "TTFT", [0.5, 0.5], burned, UTC, colours.LIGHT)
    names = [trace.name for trace in figure.data]
    assert names.count("usual") == 2
    assert names.count("SLO") == 1
    assert len(figure.layout.shapes) == 1
    traffic = charts.traffic(now, before, burned, UTC, colours.LIGHT)
    assert traffic.layout.yaxis.title.text == "requests/s"
    drawn = sum(sum(trace.y) for trace in traffic.data if trace.type == "bar")
    assert drawn * 120 == pytest.approx(3000)
    failures = charts.failures(now, before, burned, UTC, colours.DARK)
    assert "cancelled" in csv_of(failures)
    text = csv_of(figure)
    assert text.splitlines()[0] == "series,time in UTC,value,text"
    assert "P99,2025-11-20 01:01:00" in text


def test_the_newest_bins_wait(opened: Callable[..., Engine], one_request: Any) -> None:
    """A refused request is reported before the others, so it would be 100 % of the newest bin."""
    rows = [one_request(n, received_unix_ns=START_NS + n * 5 * NS) for n in range(100)]
    last = START_NS + 590 * NS
    rows.append(one_request(200, received_unix_ns=last, outcome=Outcome.REJECTED))
    now = trends.read(opened(rows), WINDOW, {}, 60 * NS)
    failures = charts.failures(now, None, [], UTC, colours.LIGHT)
    refused = next(trace for trace in failures.data if trace.name == "refused")
    assert refused.y[0] == 0
    assert refused.y[-1] is None
    assert max(each for each in refused.y if each is not None) == 0


def test_an_empty_stretch_is_drawn_empty(opened: Callable[..., Engine]) -> None:
    now = trends.read(opened([]), WINDOW, {})
    failures = charts.failures(now, None, [], UTC, colours.EITHER)
    assert set(failures.data[0].y) == {None}
    assert now.number == 0


def test_joined_requests_count_once_and_are_not_compared_with_engine_rows(
    opened: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened([])
    rows = [row for number in range(20) for row in pair(number)]
    earlier = [
        replace(
            each,
            received_unix_ns=each.received_unix_ns - 600 * NS,
            trace_id=f"b{each.trace_id[1:]}",
        )
        for each in rows
    ]
    store_rows(engine, [*rows, *earlier], STATED)
    window = Window(JOINED_START_NS, JOINED_START_NS + 600 * NS)
    now = trends.read(engine, window, {}, 60 * NS)
    assert (now.number, now.counted_as) == (20, CountedAs.JOINED)
    e2e_s = now.percentiles["e2e_s"].series["p50"].value_s
    assert e2e_s[~np.isnan(e2e_s)] == pytest.approx(0.520)
    of_one = trends.read(engine, window, {"replica": "d"}, 60 * NS)
    assert (of_one.number, of_one.counted_as) == (20, CountedAs.ENGINE_ROWS)

    build_marked(engine, time.time_ns() // NS)
    monkeypatch.setattr(trends, "MAX_JOINED", 30)
    before = trends.before(engine, now, {})
    assert before is not None
    assert (before.number, before.rolled) == (20, False)
    monkeypatch.setattr(trends, "MAX_JOINED", 10)
    assert trends.before(engine, now, {}) is None
    rolled = trends.read(engine, window, {}, 60 * NS)
    assert (rolled.number, rolled.counted_as) == (40, CountedAs.ENGINE_ROWS)
    monkeypatch.setattr(trends, "MAX_JOINED", 1_000)
    before = trends.before(engine, rolled, {})
    assert before is not None
    assert before.rolled
