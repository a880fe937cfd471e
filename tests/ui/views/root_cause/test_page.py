"""The page "Root cause" as Streamlit runs it, without a browser."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from store.alerting.incidents import IncidentRow, keep_evaluation
from store.columns import evidence
from store.database import open_database
from telemetry.engines import EngineSample
from tests.ui.opening import Open, address, markup, navigation
from ui.frame.pages import BY_KEY
from ui.views.overview.words import EXAMPLE
from ui.views.root_cause.read import Material, read_material

Database = Callable[..., str]
START_S = 1_763_600_000
LINK = {"page": "root-cause", "from": str(START_S + 600), "to": str(START_S + 1200)}
HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) :red[z] $q$ \u202e" + "w" * 10_000


@pytest.fixture
def loose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An objective in force that any of these requests keeps."""
    file = tmp_path / "loose.yaml"
    file.write_text(
        EXAMPLE.replace("ttft_s <= 0.5 and tpot_s <= 0.05", "ttft_s <= 60").replace(
            "{where: streamed == true}", "{}"
        )
    )
    monkeypatch.setenv(OBJECTIVES_KEY, str(file))
    return file


def test_an_incident_is_explained(page: Open, database: Database, incident: Any) -> None:
    """Sentence, cause, levers, waterfall, evidence; and a band, since it is simulated."""
    test = page(database(incident(START_S * 10**9)), **LINK)
    assert not test.exception
    said = markup(test)
    assert test.title[0].value == "Root cause"
    assert "rose from <b>79.0 ms</b> to <b>2.08 s</b>" in said
    assert "the KV cache is full" in said
    assert "--kv-cache-dtype fp8" in said
    assert said.index("rose from") < said.index("the KV cache is full") < said.index("Try:")
    shape, growth = test.get("plotly_chart")
    assert str(shape.key).startswith("shape_ttft_s_")
    assert growth.key == "increase"
    assert [each.label for each in test.expander] == ["KV cache exhausted"]
    assert "Simulated data: no real server" in said


def test_the_address_holds_metric_and_baseline(
    page: Open, database: Database, incident: Any
) -> None:
    """So that the link that is copied shows the same to another."""
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK)
    test.selectbox("latency").select("queue_s").run()
    test.selectbox("comparison").select_index(1).run()
    assert not test.exception
    asked = address(test)
    assert asked == {**LINK, "latency": "queue", "baseline": f"{START_S}/{START_S + 600}"}
    again = page(url, **asked)
    assert again.selectbox("latency").value == "queue_s"
    assert [each for each in markup(again).splitlines() if "rose from" in each] == [
        each for each in markup(test).splitlines() if "rose from" in each
    ]


def test_the_size_of_the_growth_decides_where_the_reader_says_so(
    page: Open, database: Database, incident: Any, loose: Path
) -> None:
    """As `explain --by-size`; in the address, so that a link and a reload show the same."""
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK)
    kept = markup(test)
    assert "No incident" in kept
    assert "Choose “size decides” above" in kept
    test.selectbox("decide").select("size").run()
    assert not test.exception
    said = markup(test)
    assert "rose from <b>79.0 ms</b> to <b>2.08 s</b>" in said
    assert "the KV cache is full" in said
    assert "size decides” above" not in said
    assert "size" in test.query_params["decide"]
    again = page(url, **LINK, decide="size")
    assert again.selectbox("decide").value == "size"
    assert "rose from <b>79.0 ms</b> to <b>2.08 s</b>" in markup(again)
    again.selectbox("decide").select("slo").run()
    assert "decide" not in again.query_params
    assert "No incident" in markup(again)


def test_another_latency_is_asked_of_what_was_read(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is read once for a stretch of time that stands still."""
    url = database(incident(START_S * 10**9))
    reads: list[object] = []
    original = read_material

    def counted(*given: Any) -> Material:
        reads.append(given)
        return original(*given)

    monkeypatch.setattr("ui.views.root_cause.page.read_material", counted)
    test = page(url, **LINK)
    test.selectbox("latency").select("e2e_s").run()
    assert "E2E" in markup(test)
    assert len(reads) == 1


def test_a_part_of_the_samples_is_said_to_be_one(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where engines told more than can be kept; of requests all are read."""
    told = [
        EngineSample(
            replica="r1",
            engine=0,
            process=1,
            at_unix_ns=(START_S + second) * 10**9,
            started_unix_ns=START_S * 10**9,
        )
        for second in range(1200)
    ]
    url = database(incident(START_S * 10**9), told)
    assert "Of the samples" not in markup(page(url, **LINK))
    monkeypatch.setattr(evidence, "MOST_SAMPLES", 100)
    st.cache_resource.clear()
    assert "Samples were read for 16 s in every" in markup(page(url, **LINK))


def test_the_other_page_keeps_range_and_filters(
    page: Open, database: Database, incident: Any
) -> None:
    """There and back."""
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK, tenant="acme")
    assert set(navigation(test)) == set(BY_KEY)
    query = navigation(test)["requests"]
    assert {"from", "to", "tenant"} <= set(query)
    other = page(url, page="requests", **query)
    assert not other.exception
    assert other.title[0].value == "Requests"
    assert "400 requests" in markup(other)
    back = page(url, page="root-cause", **navigation(other)["root-cause"])
    assert not back.exception
    assert "rose from" in markup(back)


def test_nothing_to_find_is_told_with_what_was_compared(
    page: Open, database: Database, incident: Any
) -> None:
    """Calmly; how the parts compare is folded away."""
    test = page(database(incident(START_S * 10**9, waited_s=0.0)), **LINK)
    assert not test.exception
    assert "No change from the previous" in markup(test)
    assert "400 requests now, 400 before." in markup(test)
    assert "Try:" not in markup(test)


def test_too_little_data_offers_a_longer_range(
    page: Open, database: Database, incident: Any
) -> None:
    """One press away."""
    rows = incident(time.time_ns() - 1_200 * 10**9, number=10)
    test = page(database(rows), page="root-cause", last="15m")
    assert not test.exception
    assert "Too few requests." in markup(test)
    assert "at least 30 in each" in markup(test)
    test.button("wider").click().run()
    assert not test.exception
    assert test.segmented_control("range").value == "1h"


def test_a_range_without_requests_offers_one_that_has_them(
    page: Open, database: Database, incident: Any
) -> None:
    """As on the other page."""
    test = page(database(incident(START_S * 10**9)), page="root-cause", last="5m")
    assert "No requests between" in markup(test)
    test.button("show_range").click().run()
    assert not test.exception
    assert "Too few" in markup(test) or "rose" in markup(test) or "No change" in markup(test)


def burning(url: str, began_s: int, ended_s: int | None = None) -> None:
    """An incident of the objective in force."""
    engine = open_database(url)
    row = IncidentRow(
        *("chat", "page", began_s + 60, began_s, ended_s or began_s + 60, ended_s),
        *(began_s + 60, "20", None),
    )
    keep_evaluation(engine, "chat", began_s + 60, [row])
    engine.dispose()


def test_inside_an_incident_the_page_compares_with_the_time_before_it(
    page: Open, database: Database, incident: Any
) -> None:
    """The stretch just before is as slow; the incident and its verdict stand on top."""
    url = database(incident(START_S * 10**9))
    burning(url, START_S + 600)
    inside = {**LINK, "from": str(START_S + 900)}
    said = markup(page(url, **inside))
    assert "Incident <b>chat</b> since" in said
    assert "of the growth of TTFT: the KV cache is full" in said
    assert "before incident chat began" in said
    assert "rose from <b>79.0 ms</b>" in said
    asked = {**inside, "latency": "e2e"}
    (sentence,) = [each for each in said.splitlines() if "Incident <b>chat</b>" in each]
    assert sentence in markup(page(url, **asked)), "one incident, one verdict"


def test_an_unchanged_comparison_says_that_it_is_still_slow(
    page: Open, database: Database, incident: Any
) -> None:
    """Whoever names the stretch just before is not told that nothing is wrong."""
    url = database(incident(START_S * 10**9))
    burning(url, START_S + 600)
    inside = {**LINK, "from": str(START_S + 900), "baseline": f"{START_S + 600}/{START_S + 900}"}
    said = markup(page(url, **inside))
    assert "No change from the previous 5 min" in said
    assert "Still slow:</b> incident chat since" in said
    assert "Nothing" not in said


def test_a_filter_leaves_the_evidence_whole(page: Open, database: Database, incident: Any) -> None:
    """Asked about a replica, the counts are its own; all of its store is read."""
    url = database(incident(START_S * 10**9))
    everybody, nobody = page(url, **LINK), page(url, **LINK, tenant="nobody")
    assert "400 requests now, 400 before." in markup(everybody)
    assert "rose from" not in markup(nobody)
    assert "filters" in markup(nobody)


def test_an_empty_store_and_no_store_say_how_to_connect(
    page: Open, database: Database, tmp_path: Path
) -> None:
    """As on the other page."""
    for url in (database(), f"sqlite:///{tmp_path / 'none.db'}"):
        test = page(url, page="root-cause")
        assert not test.exception
        assert "pip install ./instrumentation" in test.code[0].value


def test_a_store_that_goes_away_is_a_sentence(
    page: Open, database: Database, incident: Any
) -> None:
    """The page was open when its tables went."""
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK)
    engine = open_database(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
    engine.dispose()
    test.segmented_control("range").set_value("1h").run()
    assert not test.exception
    assert "cannot be read" in markup(test)


def test_hostile_labels_are_text(page: Open, database: Database, incident: Any) -> None:
    """Where a tenant or a replica is named."""
    names = ("tenant", "route", "model", "config", "lora", "region")
    rows = incident(START_S * 10**9, **dict.fromkeys(names, HOSTILE))
    test = page(database(rows), **LINK)
    assert not test.exception
    assert "rose from" in markup(test)
    assert "<script" not in markup(test)


@pytest.mark.parametrize(
    "parameters",
    [
        {"baseline": HOSTILE},
        {"baseline": "5/1"},
        {"from": "0", "to": "1000"},
        {"last": "15m", "to": "0"},
    ],
)
def test_a_strange_address_gives_no_traceback(
    page: Open, database: Database, incident: Any, parameters: dict[str, str]
) -> None:
    """A notice, or nothing to show."""
    test = page(database(incident(START_S * 10**9, number=5)), page="root-cause", **parameters)
    assert not test.exception
    assert "<script" not in markup(test)


@pytest.mark.parametrize("in_an_incident", [False, True])
def test_a_stretch_that_is_dragged_over_is_asked_about(
    page: Open,
    database: Database,
    incident: Any,
    monkeypatch: pytest.MonkeyPatch,
    in_an_incident: bool,
) -> None:
    """Against what the chart shows before it, and the address says so; inside an incident that is
    no usual time, and the default finds one."""
    url = database(incident(START_S * 10**9))
    if in_an_incident:
        burning(url, START_S + 600)
    begun, ended = START_S + 700, START_S + 1000
    box = {"x": [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in (begun, ended)]}
    test = page(url, **LINK)
    (key,) = [key for each in test.get("plotly_chart") if (key := str(each.key)) != "increase"]

    def dragged(figure: Any, **about: Any) -> None:
        if about["key"] == key:
            monkeypatch.undo()
            st.session_state[key] = {"selection": {"box": [box]}}
            about["on_select"]()

    monkeypatch.setattr(st, "plotly_chart", dragged)
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    test.run().run()
    assert not test.exception
    asked = address(test)
    assert asked["from"] == str(begun)
    assert asked["to"] == str(ended)
    assert asked.get("baseline") == (None if in_an_incident else f"{START_S}/{begun}")
