import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from cli.main import tailspan
from tests.ui.opening import Database, Open, markup
from ui.views.overview.words import EXAMPLE

START_S = 1_763_600_000
SLICED = "{target: 0.99, timeSliceTarget: 0.95, timeSliceWindow: 1m}"
RANGE = {"page": "slos", "from": str(START_S), "to": str(START_S + 1200)}


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(EXAMPLE)
    monkeypatch.setenv(OBJECTIVES_KEY, str(file))
    return file


def test_objectives_have_history(page: Open, database: Database, incident: Any, mine: Path) -> None:
    test = page(database(incident(START_S * 10**9)), **RANGE)
    shown = markup(test)
    assert test.title[0].value == "SLOs"
    assert "streamed true" in shown
    assert "first token ≤ 500 ms, then ≤ 50 ms per token" in shown
    assert "99 % over 30d" in shown
    assert "1 % of the requests" in shown
    assert "mine.yaml" in shown
    assert "Met on 0 of 1 day with 795 requests until 01:13:15" in shown
    assert len(test.get("plotly_chart")) == 1
    test.segmented_control("by").set_value("hour").run()
    assert "by" in test.query_params
    assert "of 2 hours with 795 requests" in markup(test)


def test_the_pages_and_the_command_count_the_same_requests(
    page: Open, database: Database, incident: Any, mine: Path
) -> None:
    """The range ends between two steps of 15 s of the stored counts."""
    url = database(incident(START_S * 10**9))
    asked = {"from": str(START_S + 600), "to": str(START_S + 893)}
    slos = page(url, page="slos", **asked)
    overview, shown = markup(page(url, **asked)), markup(slos)
    in_range = re.search(r"[\d.]+ % good of [\d,]+ requests that ended from \S+ to \S+", shown)
    assert in_range is not None
    assert in_range.group() in overview
    assert in_range.group().split(" from ")[1].startswith("01:03:15 to 01:08:00")
    ((bad, events),) = re.findall(r"(\d+) of (\d+) requests over 30d until 01:08:00", shown)
    assert f"with {events} requests until 01:08:00" in shown, "compliance"
    line = next(each.value for each in slos.code if "slo status" in each.value)
    words = [*shlex.split(line)[1:], str(mine), "--format", "json", "--database", url]
    found = json.loads(CliRunner().invoke(tailspan, words).stdout)
    assert (found["bad"], found["events"]) == (int(bad), int(events))


def test_time_slices_are_counted(page: Open, database: Database, incident: Any, mine: Path) -> None:
    calendar = "{duration: 1M, calendar: {startTime: '2025-01-01 00:00:00', timeZone: Asia/Tokyo}}"
    text = EXAMPLE.replace("Occurrences", "Timeslices")
    text = text.replace("{duration: 30d, isRolling: true}", calendar)
    text = text.replace("{target: 0.99}", SLICED)
    assert calendar in text
    assert SLICED in text
    mine.write_text(text)
    test = page(database(incident(START_S * 10**9)), **RANGE)
    shown = markup(test)
    assert "99 % over a calendar month (Asia/Tokyo)" in shown
    assert "1m with at least 95 % good requests" in shown
    assert "of 20 slices of 1m" in shown


@pytest.mark.parametrize("key", ["slos", "overview"])
def test_a_blind_objective_has_a_reason_and_a_remedy(
    page: Open, database: Database, one_request: Any, mine: Path, key: str
) -> None:
    """vLLM's native spans do not contain whether a response was streamed."""
    rows = [one_request(n, streamed=None) for n in range(200)]
    start_s = rows[0].received_unix_ns // 10**9
    asked = {"page": key, "from": str(start_s), "to": str(start_s + 1_200)}
    shown = markup(page(database(rows), **asked))
    assert "<span class='state near'>blind</span>" in shown
    assert "No request matches its <code>where</code>" in shown
    assert "install the plugin" in shown
    seen = [one_request(n, streamed=True) for n in range(200)]
    assert ">blind<" not in markup(page(database(seen), **asked))


@pytest.mark.parametrize("key", ["slos", "overview"])
def test_an_objective_with_groups_is_blind_as_a_whole(
    page: Open, database: Database, one_request: Any, mine: Path, key: str
) -> None:
    mine.write_text(EXAMPLE.replace("where: streamed == true", "where: all, by: [tenant]"))
    rows = [one_request(n, tenant=f"t{n % 40}", ttft_s=None, decode_s=None) for n in range(120)]
    start_s = rows[0].received_unix_ns // 10**9
    shown = markup(
        page(database(rows), page=key, **{"from": str(start_s), "to": str(start_s + 900)})
    )
    assert shown.count("The whole SLO: blind in the last hour") == 1
    if key == "overview":
        assert "requests arrive, but SLO “chat” does not count them" in shown


def test_a_mistake_has_its_line(page: Open, database: Database, incident: Any, mine: Path) -> None:
    test = page(database(incident(START_S * 10**9)), **RANGE)
    assert "<b>No errors:</b> 1 objective." in markup(test)
    wrong = EXAMPLE.replace("0.99", "99").replace("ttft_s", "ttft")
    test.text_area(f"yaml_{mine}").set_value(wrong).run()
    shown = markup(test)
    assert "1 error" in shown
    assert "mine.yaml:11" in shown
    assert "spec.indicator.spec.ratioMetric.good.metricSource.spec.good" in shown
    assert "&#x27;ttft&#x27;" in shown
    assert "allowed" in shown
    assert "would have meant" not in shown
    test.text_area(f"yaml_{mine}").set_value(EXAMPLE.replace("0.99", "0.5")).run()
    assert "<b>No errors:</b> 1 objective." in markup(test)


def test_a_change_is_tried_out(page: Open, database: Database, incident: Any, mine: Path) -> None:
    test = page(database(incident(START_S * 10**9)), **RANGE)
    test.text_area(f"yaml_{mine}").set_value(EXAMPLE.replace("0.5 and", "3 and")).run()
    shown = markup(test)
    assert "<b>chat</b>: now <b>50 %</b> good of 799 requests (target 99 %)" in shown
    assert "then <b>100 %</b> good of 799 requests" in shown
    assert any("tailspan up --objectives mine.yaml" in each.value for each in test.code)
    assert mine.read_text() == EXAMPLE
    test.button("reset").click().run()
    assert "would have meant" not in markup(test)


def test_a_change_to_time_slices_is_counted_in_slices(
    page: Open, database: Database, incident: Any, mine: Path
) -> None:
    """The stored counts of requests do not depend on the slices, but the result does."""
    test = page(database(incident(START_S * 10**9)), **RANGE)
    sliced = EXAMPLE.replace("Occurrences", "Timeslices").replace("{target: 0.99}", SLICED)
    test.text_area(f"yaml_{mine}").set_value(sliced).run()
    shown = markup(test)
    assert "now <b>50 %</b> good of 799 requests (target 99 %)" in shown
    assert re.search(r"then <b>[^<]*</b> good of 2[01] slices of 1m", shown)


def test_other_words_do_nothing(page: Open, database: Database, incident: Any, mine: Path) -> None:
    test = page(database(incident(START_S * 10**9)), **RANGE)
    area = test.text_area(f"yaml_{mine}")
    area.set_value(EXAMPLE.replace("service: chat", "service: other")).run()
    assert "The objectives are the same as before." in markup(test)
    area.set_value(EXAMPLE.replace("{name: chat}", "{name: talk}")).run()
    assert "<b>chat</b> would be removed" in markup(test)
    assert "<b>talk</b> is new" in markup(test)


def test_any_text_is_judged_harmlessly(
    page: Open, database: Database, one_request: Any, mine: Path
) -> None:
    one = one_request(1, received_unix_ns=(START_S + 100) * 10**9)
    test = page(database([one]), **RANGE)
    for text in ("", "x" * 300_000, "\u202e: <script>"):
        test.text_area(f"yaml_{mine}").set_value(text).run()
        assert "1 error" in markup(test), text
        assert "<script" not in markup(test)


def test_without_data_the_objectives_are_shown(page: Open, database: Database) -> None:
    test = page(database(), page="slos")
    assert "alerts/objectives/chat.yaml" in markup(test)
    assert "No request was counted yet" in markup(test)


@pytest.mark.parametrize("which", ["slos", "overview"])
def test_each_group_has_its_own_budget(
    page: Open, database: Database, one_request: Any, mine: Path, which: str
) -> None:
    mine.write_text(EXAMPLE.replace("where: streamed == true", "where: all, by: [tenant]"))
    rows = [
        one_request(
            at,
            received_unix_ns=(START_S + at) * 10**9,
            tenant="<b>slow</b>" if at % 10 == 0 else f"t{at % 10}",
            ttft_s=9.0 if at % 10 == 0 else 0.1,
        )
        for at in range(1, 1000)
    ]
    test = page(database(rows), **{**RANGE, "page": which})
    shown = markup(test)
    assert "<b>slow" not in shown
    slow = "&lt;b&gt;slow&lt;/b&gt;"
    assert slow in shown
    if which == "slos":
        assert "budget for each" in shown
        assert shown.index(slow) < shown.index("<td>t5</td>")
        assert "999 requests" in shown
    else:
        assert "chat has 5 more groups" in shown
