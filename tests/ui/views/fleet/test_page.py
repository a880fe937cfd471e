"""The page "Fleet" as Streamlit runs it, without a browser."""

import csv
import io
import time
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import partial
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from store.columns import downsampled
from store.database import open_database
from store.queries import Window
from store.writer import Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.starts import EngineStart, written
from tests.ui.opening import Open, address, markup
from ui.kit.replica_measures import MEASURES
from ui.views.fleet import charts, read, table

Database = Callable[..., str]
S = 1_000_000_000
START_NS = 1_763_600_000 * S
LINK = {"from": str(START_NS // S), "to": str(START_NS // S + 300)}
HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) :red[z] $q$ \u202e" + "w" * 500


@pytest.fixture
def page(page: Open) -> Open:
    """Open this page on a database, with an address."""
    return partial(page, page="fleet")


def table_of(test: AppTest) -> str:
    """What the table of replicas was given."""
    (component,) = test.get("bidi_component")
    return str(component.proto)


def samples(*replicas: str, from_unix_ns: int = START_NS) -> list[EngineSample]:
    """Five minutes of engines, a sample every five seconds; the last has a queue."""
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


def add(url: str, gpus: Sequence[GpuSample] = (), starts: Sequence[EngineStart] = ()) -> None:
    """Put more into a database."""
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit([], [], starts, gpus).result()
    engine.dispose()


def test_a_fleet_is_shown_side_by_side(page: Open, database: Database, one_request: Any) -> None:
    """The sentence, the imbalance, the table, one measure over time, the configuration."""
    rows = [
        one_request(number, replica=f"r{1 + number % 2}", received_unix_ns=START_NS + number * S)
        for number in range(290)
    ]
    url = database(rows, samples("r1", "r2"))
    arguments = written({"scheduler.max_num_seqs": 8})
    add(
        url,
        starts=[
            EngineStart(
                replica="r1",
                engine=0,
                process=1,
                at_unix_ns=START_NS - 900 * S,
                config="c0ffee",
                arguments=arguments,
                model="llama",
            )
        ],
    )
    test = page(url, **LINK)
    assert not test.exception
    said = markup(test)
    assert test.title[0].value == "Fleet"
    assert "<b>2 replicas</b>, 1 of them with problems: <b class='name'>r2</b> (queue)" in said
    assert "Too few requests to compare the replicas" in said
    assert "c0ffee" in said
    assert len(test.get("plotly_chart")) == 1
    assert "r2" in table_of(test)
    assert "of peak" not in table_of(test)
    assert "Bandwidth" not in str(test.selectbox("measure").options)


def test_gpus_have_columns_where_they_are_told_of(page: Open, database: Database) -> None:
    """And one that is held back is in problem."""
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
    add(url, gpus)
    test = page(url, **LINK)
    assert not test.exception
    assert "<b class='name'>r1</b> (clock held back); <b class='name'>r2</b> (queue)" in markup(
        test
    )
    assert "of peak" in table_of(test)
    assert "hw thermal slowdown" in table_of(test)


def test_the_address_holds_the_measure(page: Open, database: Database) -> None:
    """So that a link shows the same to another; one that is none is told."""
    url = database([], samples("r1", "r2"))
    test = page(url, **LINK)
    test.selectbox("measure").select("kv").run()
    assert not test.exception
    asked = address(test)
    assert asked == {"page": "fleet", "measure": "kv", **LINK}
    assert page(url, **asked).selectbox("measure").value == "kv"
    strange = page(url, measure=HOSTILE, **LINK)
    assert not strange.exception
    assert "it takes queue, running, kv" in markup(strange)


def test_more_replicas_than_are_drawn_are_named(page: Open, database: Database) -> None:
    """Those with least problem."""
    names = [f"replica-{number:02d}" for number in range(table.MOST + 2)]
    test = page(database([], samples(*names)), **LINK)
    assert not test.exception
    assert "Not drawn, with fewer problems: replica-49, replica-50." in markup(test)


def test_a_long_range_is_thinned_and_says_so(
    page: Open, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates are whole all the same."""
    monkeypatch.setattr(downsampled, "MOST_ROWS", 40)
    monkeypatch.setitem(downsampled.engine_samples.__kwdefaults__ or {}, "most_rows", 40)
    test = page(database([], samples("r1", "r2")), **LINK)
    assert not test.exception
    assert "16 s in every" in markup(test)
    assert "300/s" in table_of(test)


def test_nothing_to_show_is_told_with_what_to_do(
    page: Open, database: Database, one_request: Any
) -> None:
    """No data at all; requests without engines; a range before the first."""
    assert "pip install ./instrumentation" in page(database()).code[0].value
    row = one_request(1, received_unix_ns=START_NS + S)
    test = page(database([row]), **LINK)
    assert not test.exception
    assert "tailspan up --scrape URL" in markup(test)
    assert "No engine reported its state in this range, although 1 request arrived" in markup(test)
    assert "No requests" not in markup(test)


def test_filters_hold_where_they_can(page: Open, database: Database) -> None:
    """A replica for engines; a tenant for requests alone."""
    url = database([], samples("r1", "r2"))
    test = page(url, replica="r1", tenant="acme", **LINK)
    assert not test.exception
    assert "<b>1 replica</b>, no problem found" in markup(test)
    assert "Engine state has no tenant: that filter applies to TTFT and imbalance only" in markup(
        test
    )


def test_hostile_names_are_text(page: Open, database: Database) -> None:
    """Of replicas, models, arguments."""
    url = database([], samples("r1", HOSTILE))
    add(
        url,
        starts=[
            EngineStart(
                replica=name,
                engine=0,
                process=1,
                at_unix_ns=START_NS,
                config=f"{HOSTILE}{name}",
                model=HOSTILE,
                version=HOSTILE,
                arguments=written({HOSTILE: f"{HOSTILE}{name}"}),
            )
            for name in ("r1", HOSTILE)
        ],
    )
    test = page(url, **LINK)
    assert not test.exception
    assert "<script" not in markup(test)


def test_a_store_that_goes_away_is_a_sentence(page: Open, database: Database) -> None:
    """The page was open when its tables went."""
    url = database([], samples("r1", from_unix_ns=time.time_ns() - 200 * S))
    test = page(url, last="15m")
    assert not test.exception
    engine = open_database(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE engine_samples")
    engine.dispose()
    test.segmented_control("range").set_value("1h").run()
    assert not test.exception
    assert "cannot be read" in markup(test)


def test_all_measures_can_be_taken_along_as_csv(database: Database) -> None:
    """A row for each replica and bin; a name is never a formula."""
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
