import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from analysis.over_time import rolled
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from tests.ui.opening import Database, Open, markup

HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) :red[z] $q$ \x00\u202e" + "w" * 10_000


@pytest.fixture
def page(page: Open) -> Open:
    return partial(page, page="requests")


def data_of(test: AppTest) -> str:
    (component,) = test.get("bidi_component")
    return str(component.proto)


def recent(length_s: float = 620) -> int:
    return time.time_ns() - int(length_s * 1e9)


def test_no_database_shows_how_to_connect(page: Open, tmp_path: Path) -> None:
    test = page(f"sqlite:///{tmp_path / 'none.db'}")
    assert "pip install ./instrumentation" in test.code[0].value
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4317" in test.code[0].value
    assert "curl" in test.code[1].value
    assert not (tmp_path / "none.db").exists()


def test_the_whole_fleet_is_shown(page: Open, database: Database, fleet: Any) -> None:
    test = page(database(*fleet(500, recent(), 600)))
    assert test.title[0].value == "Requests"
    assert "500 requests" in markup(test)
    assert "P99" in markup(test)
    assert "live" in markup(test)
    assert len(test.get("plotly_chart")) == 3
    assert "chatcmpl-" in data_of(test)
    assert "Simulated" not in markup(test)


def test_more_requests_than_are_read_are_shown_from_rollups(
    page: Open, database: Database, fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database(*fleet(500, recent(), 600))
    engine = open_database(url)
    build_marked(engine, time.time_ns() // 10**9 + 7_200)
    engine.dispose()
    monkeypatch.setattr(rolled, "MAX_READ", 100)
    test = page(url, last="1h")
    assert "500 requests" in markup(test)
    assert "within 1 %" in markup(test)
    assert len(test.get("plotly_chart")) == 3
    assert "chatcmpl-" in data_of(test)
    test.selectbox("latency").select("e2e_s").run()
    assert not test.exception
    assert "No request has ever matched" in markup(page(url, last="1h", tenant="nobody"))


def test_requests_that_took_no_time_are_drawn(
    page: Open, database: Database, one_request: Any
) -> None:
    """A span may begin and end at the same instant."""
    start_s = 1_763_600_000
    unknown = dict.fromkeys(("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s"), None)
    at_ns = (start_s + 600) * 10**9
    rows = [
        one_request(1, received_unix_ns=start_s * 10**9),
        one_request(2, received_unix_ns=at_ns, e2e_s=0.0, ttft_s=None, **unknown),
    ]
    test = page(database(rows), **{"from": str(start_s), "to": str(start_s + 1_200)})
    assert "2 requests" in markup(test)


def test_simulated_data_is_marked(page: Open, database: Database, fleet: Any) -> None:
    rows, samples = fleet(50, recent(), 600, simulated=True)
    assert "Simulated data: these numbers" in markup(page(database(rows, samples)))
    assert "Simulated data: these numbers" in markup(page(database([], samples)))


def test_filters_without_matches_can_be_cleared(page: Open, database: Database, fleet: Any) -> None:
    test = page(database(*fleet(500, recent(), 600)), tenant="nobody")
    assert "No request has ever matched these filters" in markup(test)
    test.button("clear_filters").click().run()
    assert "500 requests" in markup(test)
    assert "tenant" not in test.query_params


def test_filters_are_chips_that_remove_them(page: Open, database: Database, fleet: Any) -> None:
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
    test = page(database(*fleet(100, recent(), 600)), last="1h", latency="e2e", replica="r2")
    assert test.selectbox("latency").value == "e2e_s"
    assert test.selectbox("filter_replica").value == "r2"
    assert "replica <b>r2</b>" in markup(test)


def test_pausing_keeps_the_range(page: Open, database: Database, fleet: Any) -> None:
    test = page(database(*fleet(100, recent(), 600)))
    test.button("pause").click().run()
    assert "'paused'>paused" in markup(test)
    stands = test.query_params["to"]
    test.run()
    assert test.query_params["to"] == stands
    test.button("pause").click().run()
    assert "to" not in test.query_params


def test_choices_change_the_address(page: Open, database: Database, fleet: Any) -> None:
    test = page(database(*fleet(300, recent(), 600)))
    test.selectbox("latency").select("tpot_s").run()
    test.selectbox("filter_tenant").select("acme").run()
    assert test.query_params["latency"] == "tpot"
    assert test.query_params["tenant"] == "acme"
    assert "tenant <b>acme</b>" in markup(test)


@pytest.mark.parametrize("latency", ["ttft", "itl_max", "tpot", "e2e", "queue"])
def test_requests_with_unknown_values_are_shown(
    page: Open, database: Database, one_request: Any, latency: str
) -> None:
    known = {"trace_id", "span_id", "received_unix_ns", "e2e_s", "outcome", "source", "basis"}
    full = one_request(1, received_unix_ns=recent(60))
    bare = replace(full, **dict.fromkeys(set(full.__slots__) - known))
    key = f"{bare.received_unix_ns}-{bare.trace_id}-{bare.span_id}"
    test = page(database([bare]), latency=latency, request=key)
    assert "1 request" in markup(test)
    assert "nan" not in markup(test).lower()


def test_hostile_labels_are_text(page: Open, database: Database, one_request: Any) -> None:
    names = ("request_id", "tenant", "replica", "route", "model", "config", "error_type", "lora")
    text = HOSTILE.replace("\x00", "")
    one = one_request(1, received_unix_ns=recent(60), **dict.fromkeys(names, text))
    test = page(database([one]), tenant=text)
    assert "<script" not in markup(test)
    assert "&lt;script&gt;" in markup(test)
    assert len(markup(test)) < 20_000
    assert "1 request" in markup(test)
    assert all(len(option) <= 60 for option in test.selectbox("filter_tenant").options)


@pytest.mark.parametrize(
    "parameters",
    [
        {"from": HOSTILE, "to": "1"},
        dict.fromkeys(("last", "latency", "outcome", "request", "surprise"), HOSTILE),
        {"tenant": HOSTILE},
    ],
)
def test_a_hostile_address_falls_back(
    page: Open, database: Database, fleet: Any, parameters: dict[str, str]
) -> None:
    test = page(database(*fleet(100, recent(), 600)), **parameters)
    assert "<script" not in markup(test)
    assert ("class='notice'" in markup(test)) == ("tenant" not in parameters)


def test_an_unsupported_database_is_a_sentence(page: Open) -> None:
    test = page("mysql://someone:secret@host/db")
    assert "is not supported" in markup(test)
    assert "secret" not in markup(test)


def test_the_error_of_a_file_that_is_not_a_database_is_a_sentence(
    page: Open, tmp_path: Path
) -> None:
    (tmp_path / "notes.db").write_text("not a database, but long enough to look like one" * 50)
    test = page(f"sqlite:///{tmp_path / 'notes.db'}")
    assert "cannot be read" in markup(test)
