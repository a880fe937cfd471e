import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from store.alerting.incidents import store_evaluation
from store.database import open_database
from telemetry.incidents import IncidentRow
from tests.alerts.probe_objective import DOCUMENT
from tests.ui.opening import HOSTILE, Database, Open, markup, navigation
from ui.frame.pages import BY_KEY
from ui.views.overview.words import EXAMPLE

START_S = 1_763_600_000
RANGE = {"from": str(START_S), "to": str(START_S + 1200)}


def keep(url: str, rows: Sequence[IncidentRow], slo: str = "chat") -> None:
    engine = open_database(url)
    store_evaluation(engine, slo, START_S + 1200, rows)
    engine.dispose()


def burn(ended_s: int | None = None) -> IncidentRow:
    began = START_S + 600
    return IncidentRow(
        "chat", "page", began + 240, began, began + 600, ended_s, began + 500, "49/2", "1/50"
    )


def test_without_an_address_the_page_that_opens_is_this_one(page: Open, tmp_path: Path) -> None:
    test = page(f"sqlite:///{tmp_path / 'none.db'}")
    assert test.title[0].value == "Overview"
    assert "pip install ./instrumentation" in test.code[0].value


def test_a_burn_has_its_start_and_requests(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9))
    keep(url, [burn()])
    test = page(url, **RANGE)
    shown = markup(test)
    assert "SLO “chat” is <abbr" in shown
    assert re.search(r"since <b>01:03</b>; <b>39\d requests</b> missed it", shown)
    assert "class='state bad'>paging" in shown
    (link,) = re.findall(r"href='([^']+)'", shown)
    assert link == f"root-cause?incident=chat%40{burn().fired_unix_s}"
    assert "Simulated data: these numbers" in shown
    assert len(test.get("plotly_chart")) == 5


def test_a_burn_is_reported_without_requests_in_the_range(
    page: Open, database: Database, incident: Any
) -> None:
    """If all servers are down, no request arrives."""
    url = database(incident(START_S * 10**9))
    keep(url, [burn()])
    shown = markup(page(url, **{"from": str(START_S + 1_210), "to": str(START_S + 1_270)}))
    assert "No requests between" in shown
    assert "SLO “chat” is <abbr" in shown


def test_a_past_incident_is_in_the_list(page: Open, database: Database, fleet: Any) -> None:
    rows, samples = fleet(2000, START_S * 10**9, 1200)
    quick = [replace(row, streamed=True, ttft_s=row.ttft_s and 0.1, decode_s=0.1) for row in rows]
    url = database(quick, samples)
    keep(url, [burn(START_S + 1100)])
    test = page(url, **{**RANGE, "from": str(START_S + 1110)})
    shown = markup(test)
    assert not test.exception
    assert "<b>Yes" not in shown
    assert "for 8 min 20 s" in shown
    assert "peak 24.5×" in shown
    assert "spent 2 % of the error budget" in shown


def test_incidents_about_requests_are_shaded_once(
    page: Open, database: Database, incident: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charts show requests, so they omit incidents of objectives on probes."""
    (tmp_path / "chat.yaml").write_text(EXAMPLE)
    (tmp_path / "web.yaml").write_text(EXAMPLE.replace("name: chat", "name: web"))
    probes = DOCUMENT.format(events="probes", where="where: all", good="wait_s <= 5")
    (tmp_path / "outside.yaml").write_text(probes)
    monkeypatch.setenv(OBJECTIVES_KEY, str(tmp_path))
    url = database(incident(START_S * 10**9))
    keep(url, [burn(START_S + 1_000)])
    keep(url, [replace(burn(START_S + 1_100), slo="web", began_unix_s=START_S + 700)], "web")
    early = replace(burn(START_S + 300), slo="outside", began_unix_s=START_S + 100)
    keep(url, [early], "outside")
    test = page(url, **RANGE)
    assert "outside" in markup(test)
    charts = [json.loads(each.proto.spec)["layout"] for each in test.get("plotly_chart")]
    assert [len(each.get("shapes", ())) for each in charts] == [1] * 5


def test_met_objectives_are_reported(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9, waited_s=0.0))
    test = page(url, **RANGE)
    assert "SLO “chat” is met: <b>100 %</b> of 79" in markup(test)
    assert "target 99 %" in markup(test)
    assert "No incident in this range" in markup(test)


def test_one_request_is_too_few(page: Open, database: Database, one_request: Any) -> None:
    one = one_request(1, received_unix_ns=(START_S + 100) * 10**9, streamed=True)
    test = page(database([one]), **RANGE)
    assert "<b>Too few requests:</b> 1 request counted for an SLO" in markup(test)
    assert not re.search(r"\bnan\b", markup(test), re.IGNORECASE)


def test_without_an_objective_there_is_an_example(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("kind: SLO\n")
    monkeypatch.setenv(OBJECTIVES_KEY, str(tmp_path))
    test = page(database(incident(START_S * 10**9)), **RANGE)
    assert "No SLO is defined" in markup(test)
    assert "1 error in the objectives’ files" in markup(test)
    assert "ttft_s <= 0.5" in test.code[0].value
    assert any("tailspan slo check" in each.value for each in test.markdown)


def test_missing_objectives_are_a_sentence(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OBJECTIVES_KEY, "/nowhere/chat.yaml")
    test = page(database(incident(START_S * 10**9)), **RANGE)
    assert "/nowhere/chat.yaml: no such file or folder" in markup(test)
    assert len(test.get("plotly_chart")) == 5


def test_several_viewers_of_one_range_read_it_once(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from analysis.over_time import trends

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
    names = ("tenant", "route", "model", "replica")
    rows = incident(START_S * 10**9, number=50, **dict.fromkeys(names, HOSTILE))
    test = page(database(rows), **RANGE, tenant=HOSTILE)
    assert "<script" not in markup(test)
    assert "&lt;script&gt;" in markup(test)


def test_links_to_pages_keep_the_range(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9))
    test = page(url, **RANGE, tenant="acme")
    for name in ("slos", "cost", "root-cause", "requests", "overview"):
        query = navigation(test)[name]
        assert query == {**RANGE, "tenant": "acme"}
        test = page(url, page=name, **query)
        assert test.title[0].value == BY_KEY[name].name


def test_a_live_page_shows_whole_steps(page: Open, database: Database, fleet: Any) -> None:
    start = time.time_ns() - 605 * 10**9
    test = page(database(*fleet(500, start, 600)))
    assert ">live<" in markup(test)
    assert len(test.get("plotly_chart")) == 5
