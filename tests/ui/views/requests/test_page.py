"""The Requests page as Streamlit runs it, without a browser."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from store.database import open_database
from store.rollups.building import settle
from tests.ui.opening import Open, markup
from ui.kit import rollup_reads

Database = Callable[..., str]
HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) :red[z] $q$ \x00\u202e" + "w" * 10_000


@pytest.fixture
def page(page: Open) -> Open:
    """Open this page on a database, with an address."""
    return partial(page, page="requests")


def data_of(test: AppTest) -> str:
    """What the table of the slowest was given."""
    (component,) = test.get("bidi_component")
    return str(component.proto)


def recent(length_s: float = 620) -> int:
    """The instant so many seconds ago."""
    return time.time_ns() - int(length_s * 1e9)


def test_without_a_database_it_says_how_to_connect_a_server(page: Open, tmp_path: Path) -> None:
    """The lines to copy; and nothing is made in the reader's name."""
    test = page(f"sqlite:///{tmp_path / 'none.db'}")
    assert not test.exception
    assert "pip install ./instrumentation" in test.code[0].value
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4317" in test.code[0].value
    assert "curl" in test.code[1].value
    assert not (tmp_path / "none.db").exists()


def test_an_empty_database_says_how_to_connect_a_server(page: Open, database: Database) -> None:
    """No data at all, as on the first day."""
    test = page(database())
    assert not test.exception
    assert "pip install ./instrumentation" in test.code[0].value


def test_a_fleet_is_shown_whole(page: Open, database: Database, fleet: Any) -> None:
    """Sentence, three charts, the slowest; no band where the data is real."""
    test = page(database(*fleet(3000, recent(), 600)))
    assert not test.exception
    assert test.title[0].value == "Requests"
    assert "3,000 requests" in markup(test)
    assert "P99" in markup(test)
    assert "live" in markup(test)
    assert len(test.get("plotly_chart")) == 3
    assert "chatcmpl-" in data_of(test)
    assert "Simulated" not in markup(test)


def test_more_requests_than_are_read_are_shown_from_rollups(
    page: Open, database: Database, fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same charts and the slowest, and it says that percentiles are within 1 %."""
    url = database(*fleet(3000, recent(), 600))
    engine = open_database(url)
    settle(engine, time.time_ns() // 10**9 + 7_200)
    engine.dispose()
    monkeypatch.setattr(rollup_reads, "MOST_READ", 100)
    test = page(url, last="1h")
    assert not test.exception
    assert "3,000 requests" in markup(test)
    assert "within 1 %" in markup(test)
    assert len(test.get("plotly_chart")) == 3
    assert "chatcmpl-" in data_of(test)
    test.selectbox("latency").select("e2e_s").run()
    assert not test.exception
    assert "No request has ever matched" in markup(page(url, last="1h", tenant="nobody"))


def test_simulated_data_says_so(page: Open, database: Database, fleet: Any) -> None:
    """Also where only the samples are simulated."""
    rows, samples = fleet(50, recent(), 600, simulated=True)
    assert "Simulated data: no real server" in markup(page(database(rows, samples)))
    assert "Simulated data: no real server" in markup(page(database([], samples)))


def test_a_range_without_requests_offers_one_that_has_them(
    page: Open, database: Database, fleet: Any
) -> None:
    """One press away, and the controls and the address follow."""
    test = page(database(*fleet(500, recent(86_400), 600)), last="5m")
    assert not test.exception
    assert "No requests between" in markup(test)
    test.button("show_range").click().run()
    assert not test.exception
    assert "requests</b> in 5 min" in markup(test)
    assert set(test.query_params) == {"from", "to"}


def test_filters_that_nothing_passes_can_be_cleared(
    page: Open, database: Database, fleet: Any
) -> None:
    """It says that the filters are why."""
    test = page(database(*fleet(500, recent(), 600)), tenant="nobody")
    assert "No request has ever matched these filters" in markup(test)
    test.button("clear_filters").click().run()
    assert not test.exception
    assert "500 requests" in markup(test)
    assert "tenant" not in test.query_params


def test_filters_are_chips_that_remove_them(page: Open, database: Database, fleet: Any) -> None:
    """One by one, or all of them."""
    url = database(*fleet(500, recent(), 600))
    test = page(url, tenant="acme", replica="r1", outcome="stop")
    test.button("chip_tenant").click().run()
    assert not test.exception
    assert set(test.query_params) == {"last", "replica", "outcome"}
    test.button("clear").click().run()
    assert set(test.query_params) == {"last"}
    assert "500 requests" in markup(test)
    assert not [each for each in test.button if str(each.key).startswith("chip_")]


def test_a_link_reproduces_the_view(page: Open, database: Database, fleet: Any) -> None:
    """Range, latency and filters come from the address."""
    test = page(database(*fleet(800, recent(), 600)), last="1h", latency="e2e", replica="r2")
    assert not test.exception
    assert test.selectbox("latency").value == "e2e_s"
    assert test.selectbox("filter_replica").value == "r2"
    assert "replica <b>r2</b>" in markup(test)


def test_pausing_keeps_the_range_and_resuming_follows_again(
    page: Open, database: Database, fleet: Any
) -> None:
    """What is shown stands still, and its address says where."""
    test = page(database(*fleet(100, recent(), 600)))
    test.button("pause").click().run()
    assert not test.exception
    assert "'paused'>paused" in markup(test)
    stands = test.query_params["to"]
    test.run()
    assert test.query_params["to"] == stands
    test.button("pause").click().run()
    assert "to" not in test.query_params


def test_choosing_a_latency_and_a_filter_changes_the_address(
    page: Open, database: Database, fleet: Any
) -> None:
    """So that the address is a link to what is seen."""
    test = page(database(*fleet(300, recent(), 600)))
    test.selectbox("latency").select("tpot_s").run()
    test.selectbox("filter_tenant").select("acme").run()
    assert not test.exception
    assert test.query_params["latency"] == "tpot"
    assert test.query_params["tenant"] == "acme"
    assert "tenant <b>acme</b>" in markup(test)


@pytest.mark.parametrize("latency", ["ttft", "itl_max", "tpot", "e2e", "queue"])
def test_requests_that_tell_almost_nothing_are_shown(
    page: Open, database: Database, one_request: Any, latency: str
) -> None:
    """Every value that may be unknown is."""
    known = {"trace_id", "span_id", "received_unix_ns", "e2e_s", "outcome", "source", "basis"}
    full = one_request(1, received_unix_ns=recent(60))
    bare = replace(full, **dict.fromkeys(set(full.__slots__) - known))
    key = f"{bare.received_unix_ns}-{bare.trace_id}-{bare.span_id}"
    test = page(database([bare]), latency=latency, request=key)
    assert not test.exception
    assert "1 request" in markup(test)
    assert "nan" not in markup(test).lower()


def test_hostile_labels_are_text(page: Open, database: Database, one_request: Any) -> None:
    """In the sentence, the filters and the table alike."""
    names = ("request_id", "tenant", "replica", "route", "model", "config", "error_type", "lora")
    text = HOSTILE.replace("\x00", "")
    one = one_request(1, received_unix_ns=recent(60), **dict.fromkeys(names, text))
    test = page(database([one]), tenant=text)
    assert not test.exception
    assert "<script" not in markup(test)
    assert "&lt;script&gt;" in markup(test)
    assert len(markup(test)) < 20_000
    assert "1 request" in markup(test)
    assert all(len(option) <= 60 for option in test.selectbox("filter_tenant").options)


@pytest.mark.parametrize(
    "parameters",
    [
        {"last": HOSTILE},
        {"from": HOSTILE, "to": "1"},
        {"from": "5", "to": "1"},
        {"latency": HOSTILE, "outcome": HOSTILE},
        {"request": HOSTILE},
        {"tenant": HOSTILE},
        {"surprise": "x" * 10_000},
    ],
)
def test_a_hostile_address_falls_back(
    page: Open, database: Database, fleet: Any, parameters: dict[str, str]
) -> None:
    """With a notice where something was not understood; never a traceback."""
    test = page(database(*fleet(100, recent(), 600)), **parameters)
    assert not test.exception
    assert "<script" not in markup(test)
    assert ("class='notice'" in markup(test)) == ("tenant" not in parameters)


def test_an_unsupported_database_is_a_sentence(page: Open) -> None:
    """Which URL, without its password, and what is allowed."""
    test = page("mysql://someone:secret@host/db")
    assert not test.exception
    assert "is not supported" in markup(test)
    assert "secret" not in markup(test)


def test_a_file_that_is_no_database_is_a_sentence(page: Open, tmp_path: Path) -> None:
    """Somebody named the wrong file."""
    (tmp_path / "notes.db").write_text("not a database, but long enough to look like one" * 50)
    test = page(f"sqlite:///{tmp_path / 'notes.db'}")
    assert not test.exception
    assert "cannot be read" in markup(test)


def test_a_database_that_breaks_under_the_page_is_a_sentence(
    page: Open, database: Database, fleet: Any
) -> None:
    """The page was open when its tables went."""
    url = database(*fleet(10, recent(), 600))
    test = page(url)
    engine = open_database(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
    engine.dispose()
    test.segmented_control("range").set_value("1h").run()
    assert not test.exception
    assert "cannot be read" in markup(test)
