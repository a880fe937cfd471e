import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from alerts.openslo.reader import load
from analysis.incident import incident_verdict
from analysis.incident_answer import store_verdict
from diagnosis.explanation import Explanation, ShareMethod
from store.columns import evidence
from store.database import open_database
from telemetry.engines import EngineSample
from tests.ui.conftest import burned, fill_pools, incident_row
from tests.ui.opening import HOSTILE, Database, Open, address, markup, navigation
from ui.frame.controls import BEFORE, CHOSEN
from ui.frame.pages import BY_KEY
from ui.views.overview.words import EXAMPLE
from ui.views.root_cause.read import RootCauseData, read_root_cause

START_S = 1_763_600_000
LINK = {"page": "root-cause", "from": str(START_S + 600), "to": str(START_S + 1200)}


@pytest.fixture
def loose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write an objective that every request meets."""
    file = tmp_path / "loose.yaml"
    file.write_text(
        EXAMPLE.replace("ttft_s <= 0.5 and tpot_s <= 0.05", "ttft_s <= 60").replace(
            "{where: streamed == true}", "{}"
        )
    )
    monkeypatch.setenv(OBJECTIVES_KEY, str(file))
    return file


def test_an_incident_is_explained(page: Open, database: Database, incident: Any) -> None:
    test = page(database(incident(START_S * 10**9)), **LINK)
    shown = markup(test)
    assert test.title[0].value == "Root cause"
    assert "rose from <b>79.0 ms</b> to <b>2.08 s</b>" in shown
    assert "the KV cache is full" in shown
    assert "--kv-cache-dtype fp8" in shown
    assert shown.index("rose from") < shown.index("the KV cache is full") < shown.index("Try:")
    shape, growth = test.get("plotly_chart")
    assert str(shape.key).startswith("shape_ttft_s_")
    assert growth.key == "increase"
    assert [each.label for each in test.expander] == ["KV cache exhausted"]
    assert "Simulated data: these numbers" in shown


def test_the_address_contains_the_question(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK)
    test.selectbox("latency").select("queue_s").run()
    test.selectbox("comparison").select(CHOSEN).run()
    asked = address(test)
    assert asked == {**LINK, "latency": "queue", "baseline": f"{START_S}/{START_S + 600}"}
    again = page(url, **asked)
    assert again.selectbox("latency").value == "queue_s"
    assert [each for each in markup(again).splitlines() if "rose from" in each] == [
        each for each in markup(test).splitlines() if "rose from" in each
    ]


def test_size_decides_if_chosen(page: Open, database: Database, incident: Any, loose: Path) -> None:
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK)
    kept = markup(test)
    assert "No incident" in kept
    assert "Select “size decides” above" in kept
    test.selectbox("decide").select("size").run()
    shown = markup(test)
    assert "rose from <b>79.0 ms</b> to <b>2.08 s</b>" in shown
    assert "the KV cache is full" in shown
    assert "size decides” above" not in shown
    assert "size" in test.query_params["decide"]
    again = page(url, **LINK, decide="size")
    assert again.selectbox("decide").value == "size"
    assert "rose from <b>79.0 ms</b> to <b>2.08 s</b>" in markup(again)
    again.selectbox("decide").select("slo").run()
    assert "decide" not in again.query_params
    assert "No incident" in markup(again)


def test_another_latency_uses_the_same_rows(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database(incident(START_S * 10**9))
    reads: list[object] = []
    original = read_root_cause

    def counted(*given: Any) -> RootCauseData:
        reads.append(given)
        return original(*given)

    monkeypatch.setattr("ui.views.root_cause.page.read_root_cause", counted)
    test = page(url, **LINK)
    test.selectbox("latency").select("e2e_s").run()
    assert "E2E" in markup(test)
    assert len(reads) == 1


def test_partly_read_samples_are_noted(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = [
        EngineSample(
            replica="r1",
            engine=0,
            process=1,
            at_unix_ns=(START_S + second) * 10**9,
            started_unix_ns=START_S * 10**9,
        )
        for second in range(1200)
    ]
    url = database(incident(START_S * 10**9), reported)
    assert "Of the samples" not in markup(page(url, **LINK))
    monkeypatch.setattr(evidence, "MAX_SAMPLES", 100)
    st.cache_resource.clear()
    assert "Only 16 s of every" in markup(page(url, **LINK))


def test_links_keep_range_and_filters(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9))
    test = page(url, **LINK, tenant="acme")
    assert set(navigation(test)) == set(BY_KEY)
    query = navigation(test)["requests"]
    assert {"from", "to", "tenant"} <= set(query)
    other = page(url, page="requests", **query)
    assert other.title[0].value == "Requests"
    assert "400 requests" in markup(other)
    back = page(url, page="root-cause", **navigation(other)["root-cause"])
    assert "rose from" in markup(back)


def test_no_change_is_reported_with_the_compared_ranges(
    page: Open, database: Database, incident: Any
) -> None:
    test = page(database(incident(START_S * 10**9, waited_s=0.0)), **LINK)
    assert "No change from the previous" in markup(test)
    assert "400 requests now, 400 before." in markup(test)
    assert "Try:" not in markup(test)


def test_too_little_data_widens_the_range(page: Open, database: Database, incident: Any) -> None:
    rows = incident(time.time_ns() - 1_200 * 10**9, number=10)
    test = page(database(rows), page="root-cause", last="15m")
    assert "Too few requests." in markup(test)
    assert "at least 30 in each" in markup(test)
    test.button("wider").click().run()
    assert not test.exception
    assert test.segmented_control("range").value == "1h"


def test_an_incident_sets_the_baseline(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (START_S + 600, None))
    inside = {**LINK, "from": str(START_S + 900)}
    shown = markup(page(url, **inside))
    assert "Incident <b>chat</b> since" in shown
    assert "Probably most of the growth of TTFT: the KV cache is full" in shown
    assert "before incident chat began" in shown
    assert "rose from <b>79.0 ms</b>" in shown
    asked = {**inside, "latency": "e2e"}
    (sentence,) = [each for each in shown.splitlines() if "Incident <b>chat</b>" in each]
    assert sentence in markup(page(url, **asked)), "one incident, one verdict"


def test_the_verdict_and_the_causes_have_the_same_share_by_replay(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Explanation] = []

    def tested(_engine: Any, explanation: Explanation) -> Explanation:
        asked.append(explanation)
        cause = replace(explanation.causes[0], share=0.87, low=0.7, high=0.95)
        return replace(explanation, causes=[cause], not_replayed="a test")

    monkeypatch.setattr("ui.views.root_cause.page.replayed", tested)
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (START_S + 600, None))
    shown = markup(page(url, **LINK))
    assert "87% [70% to 95%] of the growth of TTFT: the KV cache is full" in shown
    assert "Cause of <b>87 %</b> [70 % to 95 %] of the increase" in shown
    assert len(asked) == 1, "the verdict and the causes share one replay"
    live = markup(page(url, page="root-cause", last="5m"))
    assert "87 %" not in live


@pytest.fixture
def stored(
    database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., str]:
    """Return a function that stores the answer of an incident, changed by a function."""

    def store(change: Callable[[Explanation], Explanation]) -> str:
        (tmp_path / "chat.yaml").write_text(EXAMPLE)
        monkeypatch.setenv(OBJECTIVES_KEY, str(tmp_path))
        url = database(incident(START_S * 10**9))
        burned(url, "chat", (START_S + 600, None))
        (objective,) = load([tmp_path / "chat.yaml"]).objectives
        row = incident_row("chat", START_S + 600)
        engine = open_database(url)
        found = incident_verdict(engine, objective, row, START_S + 1_200)
        assert found is not None
        found = replace(found, first=change(found.first))
        store_verdict(engine, objective, row, found, START_S + 1_215)
        engine.dispose()
        return url

    return store


def with_shares(each: Explanation) -> Explanation:
    """Return the explanation with shares as if they came from a replay."""
    cause = replace(each.causes[0], share=0.87, low=0.7, high=0.95)
    return replace(each, causes=[cause], method=ShareMethod.COUNTERFACTUAL)


REPORTED = "87% [70% to 95%] of the growth of TTFT: the KV cache is full"
SHARE = "Cause of <b>87 %</b> [70 % to 95 %] of the increase"


def test_the_stored_answer_of_an_incident_is_shown_everywhere(
    page: Open, stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Overview, the Root cause page and the link to the incident show the same share."""
    monkeypatch.setattr("ui.views.root_cause.page.replayed", lambda *_: 1 / 0)
    url = stored(with_shares)
    computed = "Computed at 01:13:35 from the requests of 01:03:20 to 01:13:20."
    linked = markup(page(url, page="root-cause", incident=f"chat@{START_S + 660}"))
    overview = markup(page(url, **{"from": str(START_S), "to": str(START_S + 1_200)}))
    for shown in (linked, overview):
        assert REPORTED in shown
        assert computed in shown
        assert SHARE in shown
    assert REPORTED in markup(page(url, page="root-cause", last="1h", to=str(START_S + 1_260)))
    assert "Selected range" not in linked, "it is the range of the incident"
    monkeypatch.setattr("ui.views.root_cause.page.replayed", lambda _engine, each: each)
    part = markup(page(url, **{**LINK, "from": str(START_S + 700)}))
    assert REPORTED in part
    assert f"About the whole incident. {computed}" in part
    selected = "<b>Selected range, 01:05:00 to 01:13:20 (8 min 20 s):</b> "
    assert f"<p class='headline'>{selected}" in part
    assert f"<p class='cause'>{selected}" in part


def test_the_answer_of_an_open_incident_has_a_date_on_the_next_day(
    page: Open, stored: Callable[..., str]
) -> None:
    url, end_s = stored(with_shares), START_S + 87_600
    for shown in ("overview", "root-cause"):
        about = {"page": shown, "from": str(START_S + 600), "to": str(end_s)}
        assert "Computed at 2025-11-20 01:13:35 from" in markup(page(url, **about))


def test_a_range_is_replayed_if_the_replay_of_the_stored_answer_took_too_long(
    page: Open, stored: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ui.views.root_cause.page.replayed", lambda _engine, each: with_shares(each)
    )
    url = stored(lambda each: replace(each, not_replayed="it took longer than 120 s"))
    linked = markup(page(url, page="root-cause", incident=f"chat@{START_S + 660}"))
    assert REPORTED in linked
    assert SHARE in linked
    assert "it took longer than" not in linked


@pytest.mark.parametrize(
    ("ago", "ago_s", "name"), [("7d", 604_800, "one week"), ("90m", 5_400, "90m")]
)
def test_an_earlier_baseline_is_kept_in_the_address(
    page: Open, database: Database, incident: Any, ago: str, ago_s: int, name: str
) -> None:
    rows = [
        *incident((START_S - ago_s) * 10**9, waited_s=0.0),
        *incident(START_S * 10**9, waited_s=2.0),
    ]
    test = page(database(rows), **LINK, baseline=ago)
    shown = markup(test)
    assert "rose from <b>79.0 ms</b>" in shown
    assert not test.warning
    assert address(test)["baseline"] == ago
    chosen = test.selectbox("comparison")
    assert chosen.value == ago
    assert f"vs. {name} earlier" in chosen.options
    chosen.select(BEFORE).run()
    assert "baseline" not in address(test)
    test.selectbox("comparison").select("24h").run()
    assert address(test)["baseline"] == "24h"


def test_an_earlier_baseline_that_would_overlap_the_range_is_not_used(
    page: Open, database: Database, incident: Any
) -> None:
    test = page(database(incident(START_S * 10**9)), **LINK, baseline="5m")
    assert "rose from" in markup(test)
    assert test.selectbox("comparison").value == BEFORE


def test_no_change_may_be_still_slow(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (START_S + 600, None))
    inside = {**LINK, "from": str(START_S + 900), "baseline": f"{START_S + 600}/{START_S + 900}"}
    shown = markup(page(url, **inside))
    assert "No change from the previous 5 min" in shown
    assert "Still slow:</b> incident chat since" in shown
    assert "Nothing" not in shown


def test_a_filter_does_not_restrict_the_evidence(
    page: Open, database: Database, incident: Any
) -> None:
    url = database(incident(START_S * 10**9))
    all_tenants, other = page(url, **LINK), page(url, **LINK, tenant="nobody")
    assert "400 requests now, 400 before." in markup(all_tenants)
    assert "rose from" not in markup(other)
    assert "filters" in markup(other)


def test_hostile_labels_are_text(page: Open, database: Database, incident: Any) -> None:
    names = ("tenant", "route", "model", "config", "lora", "region")
    rows = incident(START_S * 10**9, **dict.fromkeys(names, HOSTILE))
    test = page(database(rows), **LINK)
    assert "rose from" in markup(test)
    assert "<script" not in markup(test)


@pytest.mark.parametrize(
    "parameters",
    [
        {"baseline": HOSTILE},
        {"from": "0", "to": "1000"},
        {"last": "15m", "to": "0"},
    ],
)
def test_a_strange_address_gives_no_traceback(
    page: Open, database: Database, incident: Any, parameters: dict[str, str]
) -> None:
    test = page(database(incident(START_S * 10**9, number=5)), page="root-cause", **parameters)
    assert "<script" not in markup(test)


@pytest.mark.parametrize("in_an_incident", [False, True])
def test_the_dragged_range_is_explained(
    page: Open,
    database: Database,
    incident: Any,
    monkeypatch: pytest.MonkeyPatch,
    in_an_incident: bool,
) -> None:
    url = database(incident(START_S * 10**9))
    if in_an_incident:
        burned(url, "chat", (START_S + 600, None))
    begun, ended = START_S + 700, START_S + 1000
    box = {"x": [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in (begun, ended)]}
    test = page(url, **LINK)
    (key,) = [key for each in test.get("plotly_chart") if (key := str(each.key)) != "increase"]

    draw = st.plotly_chart

    def dragged(_figure: Any, **about: Any) -> None:
        if about["key"] == key:
            monkeypatch.setattr(st, "plotly_chart", draw)
            st.session_state[key] = {"selection": {"box": [box]}}
            about["on_select"]()

    monkeypatch.setattr(st, "plotly_chart", dragged)
    test.run().run()
    assert not test.exception
    assert address(test)["from"] != str(begun)
    test.button("offer_explain").click().run()
    asked = address(test)
    assert asked["from"] == str(begun)
    assert asked["to"] == str(ended)
    assert asked.get("baseline") == (None if in_an_incident else f"{START_S}/{begun}")


def test_the_page_links_to_the_incident_itself(
    page: Open, database: Database, incident: Any
) -> None:
    """If the range begins before the incident, the page has a link to the incident."""
    url = database(incident(START_S * 10**9))
    burned(url, "chat", (START_S + 600, None))
    wider = {**LINK, "from": str(START_S + 300), "to": str(START_S + 1_200)}
    assert "incident=chat%40" in markup(page(url, **wider)).partition("Before the incident")[0]
    inside = {**LINK, "from": str(START_S + 700), "to": str(START_S + 1_200)}
    assert "Before the incident" not in markup(page(url, **inside))


def test_joined_requests_have_phases_and_pools(
    page: Open, database: Database, one_request: Any
) -> None:
    """In the second half, the decode engine waits 2 s for the KV cache."""
    rows = []
    for number in range(400):
        at_ns = (START_S + 3 * number) * 10**9
        waited_s = 2.0 if number >= 200 else 0.0
        common = {
            "trace_id": f"{number + 1:032x}",
            "request_id": f"cmpl-{number}-0",
            "streamed": True,
        }
        rows.append(
            one_request(
                2 * number, **common, replica=HOSTILE, received_unix_ns=at_ns, output_tokens=1
            )
        )
        rows.append(
            one_request(
                2 * number + 1,
                **common,
                replica="decodes",
                received_unix_ns=at_ns + 10**9 // 5,
                queue_s=0.02 + waited_s,
                ttft_s=0.105 + waited_s,
                cached_tokens=384,
                external_cached_tokens=384,
            )
        )
    url = database(rows)
    fill_pools(url, START_S * 10**9 - 1, HOSTILE, "decodes")
    shown = markup(page(url, **LINK))
    assert "joined requests" in shown
    assert "decode queue" in shown
    assert "<b>Decode pool</b> (decodes), growth of its phases" in shown
    assert "TTFT of its slowest requests rose: 2." in shown
    assert "<b>Prefill pool</b>" in shown
    assert "<script>" not in shown
