import csv
import io
from datetime import UTC
from functools import partial
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from store.columns import downsampled
from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.starts import written
from telemetry.window import Window
from tests import cold_starts
from tests.cold_starts import cold_start
from tests.ui.conftest import fill, make_start
from tests.ui.opening import HOSTILE, Database, Open, address, markup
from ui.kit.replica_measures import MEASURES
from ui.views.fleet import charts, read, table

S = 1_000_000_000
START_NS = 1_763_600_000 * S
LINK = {"from": str(START_NS // S), "to": str(START_NS // S + 300)}


@pytest.fixture
def page(page: Open) -> Open:
    return partial(page, page="fleet")


def table_of(test: AppTest) -> str:
    (component,) = test.get("bidi_component")
    return str(component.proto)


def samples(*replicas: str, from_unix_ns: int = START_NS) -> list[EngineSample]:
    """Return five minutes of engine samples, 5 s apart; the last engine has a queue."""
    return [
        EngineSample(
            replica=name,
            engine=0,
            process=1,
            at_unix_ns=from_unix_ns + second * S,
            started_unix_ns=from_unix_ns - 900 * S,
            waiting=second // 10 if name == replicas[-1] else 0,
            running=8,
            kv_usage_ratio=0.5,
            longest_step_s=0.03,
            steps_total=40 * second,
            busy_s_total=0.8 * second,
            decode_tokens_total=300 * second,
        )
        for second in range(0, 300, 5)
        for name in replicas
    ]


def test_a_fleet_is_shown_side_by_side(page: Open, database: Database, one_request: Any) -> None:
    rows = [
        one_request(number, replica=f"r{1 + number % 2}", received_unix_ns=START_NS + number * S)
        for number in range(290)
    ]
    url = database(rows, samples("r1", "r2"))
    arguments = written({"scheduler.max_num_seqs": 8})
    about = {"config": "c0ffee", "arguments": arguments, "model": "llama"}
    fill(url, [], [], [make_start("r1", START_NS - 900 * S, **about)])
    test = page(url, **LINK)
    shown = markup(test)
    assert test.title[0].value == "Fleet"
    assert "<b>2 replicas</b>, 1 of them with problems: <b class='name'>r2</b> (queue)" in shown
    assert "Too few requests to compare the replicas" in shown
    assert "c0ffee" in shown
    assert len(test.get("plotly_chart")) == 1
    assert "r2" in table_of(test)
    assert "of peak" not in table_of(test)
    assert "Bandwidth" not in str(test.selectbox("measure").options)


def test_only_replicas_with_samples_are_compared(
    page: Open, database: Database, one_request: Any
) -> None:
    rows = [
        one_request(number, replica=f"r{1 + number % 2}", received_unix_ns=START_NS + number * S)
        for number in range(500)
    ]
    unknown = [
        one_request(500 + number, replica=f"unknown-{number}", received_unix_ns=START_NS + S)
        for number in range(40)
    ]
    link = {**LINK, "to": str(START_NS // S + 500)}
    shown = markup(page(database([*rows, *unknown], samples("r1", "r2")), **link))
    assert "(500 requests). Load is even." in shown
    assert "40 more replicas have requests but no engine samples, and are not compared." in shown
    assert "no engine samples" not in markup(page(database(rows, samples("r1", "r2")), **link))


def test_gpus_have_columns_if_reported(page: Open, database: Database) -> None:
    url = database([], samples("r1", "r2"))
    gpus = [
        GpuSample(
            replica="r1",
            gpu="0",
            at_unix_ns=START_NS + second * S,
            dram_bandwidth_ratio=0.5,
            sm_clock_hz=10**9,
            sm_clock_max_hz=2 * 10**9,
            throttle_reasons="hw_thermal_slowdown",
        )
        for second in range(300)
    ]
    fill(url, [], [], [], gpus)
    test = page(url, **LINK)
    assert "<b class='name'>r1</b> (clock throttled); <b class='name'>r2</b> (queue)" in markup(
        test
    )
    assert "of peak" in table_of(test)
    assert "hw thermal slowdown" in table_of(test)


def test_the_address_contains_the_measure(page: Open, database: Database) -> None:
    url = database([], samples("r1", "r2"))
    test = page(url, **LINK)
    test.selectbox("measure").select("kv").run()
    assert not test.exception
    asked = address(test)
    assert asked == {"page": "fleet", "measure": "kv", **LINK}
    assert page(url, **asked).selectbox("measure").value == "kv"
    strange = page(url, measure=HOSTILE, **LINK)
    assert "allowed: queue, running, kv" in markup(strange)


def test_more_replicas_than_are_drawn_are_named(page: Open, database: Database) -> None:
    names = [f"replica-{number:02d}" for number in range(table.MAX_REPLICAS + 2)]
    test = page(database([], samples(*names)), **LINK)
    assert "Replicas with fewer problems, not drawn: replica-49, replica-50." in markup(test)


def test_a_long_range_is_sampled_with_a_note(
    page: Open, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downsampled, "MAX_ROWS", 40)
    monkeypatch.setitem(downsampled.engine_samples.__kwdefaults__ or {}, "max_rows", 40)
    test = page(database([], samples("r1", "r2")), **LINK)
    assert "16 s of every" in markup(test)
    assert "300/s" in table_of(test)


def test_an_empty_page_has_a_next_step(page: Open, database: Database, one_request: Any) -> None:
    assert "pip install ./instrumentation" in page(database()).code[0].value
    row = one_request(1, received_unix_ns=START_NS + S)
    test = page(database([row]), **LINK)
    assert "tailspan up --scrape URL" in markup(test)
    assert "No engine reported its state in this range, although 1 request arrived" in markup(test)
    assert "No requests" not in markup(test)


def test_filters_apply_where_possible(page: Open, database: Database) -> None:
    url = database([], samples("r1", "r2"))
    test = page(url, replica="r1", tenant="acme", **LINK)
    assert "<b>1 replica</b>, no problem found" in markup(test)
    assert "The filter by tenant applies only to TTFT and imbalance" in markup(test)


def test_starts_are_those_of_the_selected_servers(database: Database) -> None:
    """A start that failed has no model, so it may belong to the selected model."""
    started = [
        cold_start(0, replica="r1", model="llama", region="eu"),
        cold_start(1, replica="r2", model="qwen", region="eu"),
        cold_start(2, replica="r3", model=None, region="eu", reached="weights"),
        cold_start(3, replica="r4", model="llama", region="us"),
    ]
    engine = open_database(database([], samples("r1", "r2")))
    with Writer(engine) as writer:
        writer.submit([], [], cold_starts=started).result(10)
    window = Window(cold_starts.START_NS, cold_starts.START_NS + 300 * S)
    shown = {
        name: [each.replica for each in read.read_fleet(engine, window, equals).starts.shown]
        for name, equals in {
            "all": {},
            "model": {"model": "llama"},
            "region": {"region": "eu"},
            "both": {"model": "qwen", "region": "eu", "tenant": "acme"},
        }.items()
    }
    engine.dispose()
    assert shown == {
        "all": ["r1", "r2", "r3", "r4"],
        "model": ["r1", "r3", "r4"],
        "region": ["r1", "r2", "r3"],
        "both": ["r2", "r3"],
    }


def test_hostile_names_are_text(page: Open, database: Database) -> None:
    url = database([], samples("r1", HOSTILE))
    starts = [
        make_start(
            name,
            START_NS,
            config=f"{HOSTILE}{name}",
            model=HOSTILE,
            version=HOSTILE,
            arguments=written({HOSTILE: f"{HOSTILE}{name}"}),
        )
        for name in ("r1", HOSTILE)
    ]
    fill(url, [], [], starts)
    test = page(url, **LINK)
    assert "<script" not in markup(test)


def test_all_measures_can_be_downloaded_as_csv(database: Database) -> None:
    url = database([], samples("r1", "=cmd()"))
    engine = open_database(url)
    window = Window(START_NS, START_NS + 300 * S)
    found = read.read_fleet(engine, window, {})
    engine.dispose()
    rows = list(csv.DictReader(io.StringIO(charts.as_csv(found.fleet.replicas, found.fleet))))
    assert set(MEASURES) <= set(rows[0])
    assert {row["replica"] for row in rows} == {"r1", "'=cmd()"}
    first = next(row for row in rows if row["replica"] == "r1")
    assert (first["running"], first["bandwidth"]) == ("8.0", "")
    figure = charts.side_by_side(found.fleet, MEASURES["queue"], window, UTC)
    assert len(figure.data[0].z) == 2
