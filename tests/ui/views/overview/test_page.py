"""The page "Overview" as Streamlit runs it, without a browser."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from store.alerting.incidents import IncidentRow, keep_evaluation
from store.database import open_database
from tests.ui.opening import Open, markup, navigation
from ui.frame.pages import BY_KEY

Database = Callable[..., str]
START_S = 1_763_600_000
RANGE = {"from": str(START_S), "to": str(START_S + 1200)}
HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) :red[z] $q$ \u202e" + "w" * 10_000


def keep(url: str, rows: Sequence[IncidentRow], slo: str = "chat") -> None:
    """Note incidents, as the evaluator does."""
    engine = open_database(url)
    keep_evaluation(engine, slo, START_S + 1200, rows)
    engine.dispose()


def burn(ended_s: int | None = None) -> IncidentRow:
    """An incident since the eleventh minute."""
    began = START_S + 600
    return IncidentRow(
        "chat", "page", began + 240, began, began + 600, ended_s, began + 500, "49/2", "1/50"
    )


def test_without_an_address_the_page_that_opens_is_this_one(page: Open, tmp_path: Path) -> None:
    """And on the first day it says how to connect a server."""
    test = page(f"sqlite:///{tmp_path / 'none.db'}")
    assert not test.exception
    assert test.title[0].value == "Overview"
    assert "pip install ./instrumentation" in test.code[0].value


def test_an_empty_database_says_how_to_connect_a_server(page: Open, database: Database) -> None:
    """No data at all is no promise kept."""
    test = page(database())
    assert not test.exception
    assert "pip install ./instrumentation" in test.code[0].value
    assert "kept" not in markup(test)


def test_a_burn_is_told_with_its_beginning_and_whom_it_hurts(
    page: Open, database: Database, incident: Any
) -> None:
    """In the first sentence; and the way to the reasons names the incident."""
    url = database(incident(START_S * 10**9))
    keep(url, [burn()])
    test = page(url, **RANGE)
    assert not test.exception
    said = markup(test)
    assert "SLO “chat” is <abbr" in said
    assert re.search(r"since <b>01:03</b>; <b>39\d requests</b> missed it", said)
    assert "class='state hurt'>paging" in said
    (link,) = re.findall(r"href='([^']+)'", said)
    assert link == f"root-cause?incident=chat%40{burn().fired_unix_s}"
    assert "Simulated data: no real server" in said
    assert len(test.get("plotly_chart")) == 5


def test_an_incident_that_is_over_is_told_among_the_incidents_alone(
    page: Open, database: Database, fleet: Any
) -> None:
    """With its length, its peak and what it spent."""
    rows, samples = fleet(2000, START_S * 10**9, 1200)
    quick = [replace(row, streamed=True, ttft_s=row.ttft_s and 0.1, decode_s=0.1) for row in rows]
    url = database(quick, samples)
    keep(url, [burn(START_S + 1100)])
    test = page(url, **{**RANGE, "from": str(START_S + 1110)})
    said = markup(test)
    assert not test.exception
    assert "<b>Yes" not in said
    assert "for 8 min 20 s" in said
    assert "peak 24.5×" in said
    assert "spent 2 % of the error budget" in said


def test_promises_that_are_kept_are_told_calmly(
    page: Open, database: Database, incident: Any
) -> None:
    """With how many requests speak for it, of how long."""
    url = database(incident(START_S * 10**9, waited_s=0.0))
    test = page(url, **RANGE)
    assert not test.exception
    assert "SLO “chat” is met: <b>100 %</b> of 79" in markup(test)
    assert "target 99 %" in markup(test)
    assert "None in this range" in markup(test)


def test_one_request_is_too_little_to_tell(
    page: Open, database: Database, one_request: Any
) -> None:
    """And nothing is drawn that nobody knows."""
    one = one_request(1, received_unix_ns=(START_S + 100) * 10**9, streamed=True)
    test = page(database([one]), **RANGE)
    assert not test.exception
    assert "<b>Too few requests:</b> 1 request counted for an SLO" in markup(test)
    assert "nan" not in markup(test).lower()


def test_a_range_without_requests_offers_one_that_has_them(
    page: Open, database: Database, incident: Any
) -> None:
    """The promises stay in sight."""
    test = page(database(incident(START_S * 10**9)), last="5m")
    assert not test.exception
    assert "No requests between" in markup(test)
    test.button("show_range").click().run()
    assert not test.exception
    assert set(test.query_params) == {"from", "to"}
    assert len(test.get("plotly_chart")) == 5


def test_without_an_objective_it_says_how_to_write_one(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A whole one, to copy, and what to do with it; mistakes in files are counted."""
    (tmp_path / "mine.yaml").write_text("kind: SLO\n")
    monkeypatch.setenv(OBJECTIVES_KEY, str(tmp_path))
    test = page(database(incident(START_S * 10**9)), **RANGE)
    assert not test.exception
    assert "No SLO is defined" in markup(test)
    assert "1 mistake in the objectives’ files" in markup(test)
    assert "ttft_s <= 0.5" in test.code[0].value
    assert any("tailspan slo check" in each.value for each in test.markdown)


def test_objectives_that_are_gone_are_a_sentence(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latencies are shown all the same."""
    monkeypatch.setenv(OBJECTIVES_KEY, "/nowhere/chat.yaml")
    test = page(database(incident(START_S * 10**9)), **RANGE)
    assert not test.exception
    assert "/nowhere/chat.yaml: no such file or folder" in markup(test)
    assert len(test.get("plotly_chart")) == 5


def test_several_viewers_of_one_stretch_read_it_once(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes later is told what was read for the first."""
    from ui.views.overview import trends

    url = database(incident(START_S * 10**9))
    reads: list[object] = []
    read = trends.read

    def counted(*given: Any) -> trends.Trend:
        reads.append(given)
        return read(*given)

    monkeypatch.setattr(trends, "read", counted)
    page(url, **RANGE)
    after_one = len(reads)
    page(url, **RANGE)
    assert len(reads) == after_one > 0


def test_hostile_labels_are_text(page: Open, database: Database, incident: Any) -> None:
    """As filters, which the page names."""
    names = ("tenant", "route", "model", "replica")
    rows = incident(START_S * 10**9, number=50, **dict.fromkeys(names, HOSTILE))
    test = page(database(rows), **RANGE, tenant=HOSTILE)
    assert not test.exception
    assert "<script" not in markup(test)
    assert "&lt;script&gt;" in markup(test)


def test_a_store_that_goes_away_is_a_sentence(
    page: Open, database: Database, incident: Any
) -> None:
    """The page was open when its tables went."""
    url = database(incident(START_S * 10**9))
    test = page(url, **RANGE)
    engine = open_database(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
    engine.dispose()
    test.segmented_control("range").set_value("1h").run()
    assert not test.exception
    assert "cannot be read" in markup(test)


def test_every_page_is_one_press_away_and_keeps_the_range(
    page: Open, database: Database, incident: Any
) -> None:
    """There and back, with the filters."""
    url = database(incident(START_S * 10**9))
    test = page(url, **RANGE, tenant="acme")
    for name in ("slos", "cost", "root-cause", "requests", "overview"):
        query = navigation(test)[name]
        assert query == {**RANGE, "tenant": "acme"}
        test = page(url, page=name, **query)
        assert not test.exception, name
        assert test.title[0].value == BY_KEY[name].name


def test_a_live_page_looks_at_whole_steps_of_its_cadence(
    page: Open, database: Database, fleet: Any
) -> None:
    """Live, with what is fresh told."""
    start = time.time_ns() - 605 * 10**9
    test = page(database(*fleet(500, start, 600)))
    assert not test.exception
    assert "'live'>live" in markup(test)
    assert len(test.get("plotly_chart")) == 5
