import html
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from click.testing import CliRunner
from streamlit.testing.v1 import AppTest

from alerts import groups
from alerts.explorer_links import incident_link
from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from cli.main import tailspan
from tests.alerts.probe_objective import DOCUMENT
from tests.chat_objective import chat_openslo
from tests.ui.conftest import burned
from tests.ui.opening import Database, Open, markup, navigation
from ui.frame import address
from ui.frame.view import View

START_S = 1_763_600_000
BEGAN_S = START_S + 600


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write two objectives; every request meets the second one."""
    folder = tmp_path / "objectives"
    folder.mkdir()
    (folder / "chat.yaml").write_text(chat_openslo("ttft_s <= 0.5 and e2e_s <= 1"))
    loose = chat_openslo("ttft_s <= 60").replace("name: chat", "name: loose")
    (folder / "loose.yaml").write_text(loose)
    monkeypatch.setenv(OBJECTIVES_KEY, str(folder))
    return folder


def followed(page: Open, url: str, slo: str, fired_s: int) -> AppTest:
    _, _, query = incident_link(slo, fired_s, "https://tailspan.example.org").partition("?")
    return page(url, **dict(parse_qsl(query)))


def shown(test: AppTest) -> dict[str, str]:
    """Return the range, the filters and the comparison that the page shows."""
    view: View = test.session_state["view"]
    return {"page": view.page, **address.parameters(view)}


def explained(url: str, named: str, files: Path) -> dict[str, Any]:
    words = ["explain", "--incident", named, "--objectives", str(files), "--format", "json"]
    result = CliRunner().invoke(tailspan, [*words, "--database", url], catch_exceptions=False)
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


def test_a_link_equals_explain(page: Open, database: Database, incident: Any, files: Path) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S - 240, BEGAN_S - 120), (BEGAN_S, START_S + 1_200))
    reported = explained(url, f"chat@{BEGAN_S + 60}", files)
    assert reported["verdict"] == "incident"
    assert reported["baseline"]["to"] == BEGAN_S - 240
    test = followed(page, url, "chat", BEGAN_S + 60)
    assert test.query_params == {"incident": f"chat@{BEGAN_S + 60}"}
    assert shown(test) == {
        "page": "root-cause",
        "from": f"{reported['window']['from']:.0f}",
        "to": f"{reported['window']['to']:.0f}",
        "baseline": f"{reported['baseline']['from']:.0f}/{reported['baseline']['to']:.0f}",
        "incident": f"chat@{BEGAN_S + 60}",
        **({} if reported["metric"] == "ttft" else {"latency": reported["metric"]}),
    }
    content = markup(test)
    assert html.escape(reported["verdict_sentence"]) in content
    assert f"{reported['requests']:,} requests now" in content
    # A copied address and a link with the full query show the same page.
    assert markup(followed(page, url, "chat", BEGAN_S + 60)) == content
    assert markup(page(url, **shown(test))) == content


@pytest.mark.parametrize("tenant", ["acme", 'a@b&c="d" }', "other"])
def test_the_incident_of_a_group_opens_with_its_filters(
    page: Open, database: Database, incident: Any, files: Path, tenant: str
) -> None:
    text = chat_openslo("ttft_s <= 0.5 and e2e_s <= 1", "all")
    (files / "chat.yaml").write_text(text.replace('where: "all"', "where: all, by: [tenant]"))
    rows = incident(START_S * 10**9)
    mine = {row.trace_id for row in rows[:: 2 if tenant == "acme" else 1]}
    url = database(
        [replace(row, tenant=tenant if row.trace_id in mine else "globex") for row in rows]
    )
    name = groups.name("chat", ("tenant",), (tenant,))
    burned(url, name, (BEGAN_S, START_S + 1_200))
    reported = explained(url, f"{name}@{BEGAN_S + 60}", files)
    test = followed(page, url, name, BEGAN_S + 60)
    asked = shown(test)
    assert asked.get("tenant") == (None if tenant == "other" else tenant)
    assert asked["incident"] == f"{name}@{BEGAN_S + 60}"
    assert (asked["from"], asked["to"]) == (str(BEGAN_S), str(START_S + 1_200))
    content = markup(test)
    assert f"{reported['requests']:,} requests now" in content
    if reported["verdict_sentence"] is not None:
        assert html.escape(reported["verdict_sentence"]) in content
    assert markup(page(url, **asked)) == content


def test_the_address_may_also_filter_the_incidents_requests(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    wider = {"page": "root-cause", "from": str(BEGAN_S - 60), "to": str(START_S + 1_200)}
    content = markup(page(url, tenant="acme", **wider)).partition("Before the incident")[0]
    query = html.unescape(content.rpartition("href='root-cause?")[2].partition("'")[0])
    test = page(url, page="root-cause", **dict(parse_qsl(query)))
    assert shown(test)["tenant"] == "acme"
    assert shown(test)["incident"] == f"chat@{BEGAN_S + 60}"


def test_links_to_other_pages_have_the_incidents_range(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    links = navigation(followed(page, url, "chat", BEGAN_S + 60))
    for key, query in links.items():
        assert (query["from"], query["to"]) == (str(BEGAN_S), str(START_S + 1_200)), key
    opened = page(url, **{"page": "requests", **links["requests"]})
    assert opened.title[0].value == "Requests"


def test_open_incidents_end_now(page: Open, database: Database, incident: Any, files: Path) -> None:
    began_s = int(time.time()) - 900
    url = database(incident((began_s - 600) * 10**9))
    burned(url, "chat", (began_s, None))
    before_s = int(time.time())
    asked = shown(followed(page, url, "chat", began_s + 60))
    assert asked["from"] == str(began_s)
    assert before_s <= int(asked["to"]) <= time.time()
    assert asked["baseline"] == f"{began_s - 1_800}/{began_s}"


def test_the_named_incident_is_first(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    burned(url, "loose", (BEGAN_S - 300, START_S + 1_200))
    test = followed(page, url, "chat", BEGAN_S + 60)
    assert "Incident <b>chat</b>" in markup(test)
    test.segmented_control("range").set_value("1h").run()
    assert "incident" not in test.query_params


def test_only_its_own_slo_counts(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "loose", (BEGAN_S, START_S + 1_200))
    assert explained(url, "loose", files)["verdict_sentence"] is None
    content = markup(followed(page, url, "loose", BEGAN_S + 60))
    assert "Incident <b>loose</b>" in content
    assert "no cause found yet" in content


def test_no_latency_opens_overview(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    (files / "chat.yaml").write_text(chat_openslo("outcome == 'stop'"))
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    test = followed(page, url, "chat", BEGAN_S + 60)
    assert test.title[0].value == "Overview"
    asked = shown(test)
    assert (asked["from"], asked["to"]) == (str(BEGAN_S), str(START_S + 1_200))
    test.segmented_control("range").set_value("1h").run()
    assert test.title[0].value == "Overview"
    assert test.session_state["address"][0] == "overview"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("web@1", "one of these SLOs: chat, loose: showing the last 15m"),
        ("chat@noon", "allowed: SLO or SLO@TIME"),
        ("chat@1763000000", "SLO chat has no such incident: showing the last 15m"),
        ("<script>@\u202e" + "x" * 10_000, "one of these SLOs"),
    ],
)
def test_an_unknown_incident_has_a_notice(
    page: Open, database: Database, incident: Any, files: Path, named: str, expected: str
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    test = page(url, page="root-cause", incident=named)
    assert expected in html.unescape(markup(test))
    assert "<script>@" not in markup(test)
    assert shown(test) == {"page": "root-cause", "last": "15m"}


def test_a_part_of_an_objective_is_not_the_whole_objective(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    content = markup(followed(page, url, "chat", BEGAN_S + 60))
    assert "Objective <b>chat</b> (only its limit on TTFT) was missed more often:" in content
    assert "the target of the whole objective is 99 %" in content
    assert "Objective <b>loose</b> was met:" in content
    words = ["explain", "--incident", f"chat@{BEGAN_S + 60}", "--objectives", str(files)]
    printed = CliRunner().invoke(tailspan, [*words, "--metric", "ttft", "--database", url]).stdout
    assert "Objective chat (only its limit on TTFT) was missed more often:" in printed
    assert "the target of the whole objective is 99.0%." in printed


def test_probes_have_a_link_to_the_outside_page(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    (files / "probes.yaml").write_text(
        DOCUMENT.format(events="probes", where="where: all", good="wait_s <= 5")
    )
    url = database(incident(START_S * 10**9))
    burned(url, "outside", (BEGAN_S - 60, None))
    asked = {"page": "root-cause", "from": str(BEGAN_S), "to": str(START_S + 1_200)}
    content = markup(page(url, **asked))
    assert "Incident <b>outside</b>" in content
    assert "this objective counts probes" in content
    assert "outside?incident=outside" in content
    assert "no cause found yet" not in content
    assert "Still slow" not in content
    refused = CliRunner().invoke(
        tailspan,
        ["explain", "--incident", "outside", "--objectives", str(files), "--database", url],
    )
    assert refused.exit_code == 2
    assert "outside counts probes" in refused.stderr
    burned(url, "chat", (BEGAN_S, None))
    assert "Incident <b>chat</b>" in markup(page(url, **asked))


def test_a_baseline_without_data_does_not_hide_the_cause(
    page: Open, database: Database, incident: Any, files: Path
) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (BEGAN_S, START_S + 1_200))
    ends = {"from": str(BEGAN_S), "to": str(START_S + 1_200)}
    content = markup(page(url, page="root-cause", baseline="24h", **ends))
    assert "<b>No data one day earlier.</b> The range has <b>400 requests</b>" in content
    assert "Choose another comparison" in content
    assert "no cause found yet" not in content
    assert "of the growth of" in content
