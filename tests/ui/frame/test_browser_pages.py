"""All pages in a real browser: Debian's Chromium, headless. One explorer for each state."""

import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from store.alerting.incidents import IncidentRow, keep_evaluation
from store.database import open_database
from tests.chat_objective import chat_openslo
from tests.ui.conftest import fill
from ui.frame.pages import FIRST, PAGES

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

HOSTILE = (
    "<img src=x onerror='document.title=\"owned\"'><script>document.title='owned'</script>\u202e"
    + "w" * 3_000
)


def link(address: str, page: str, rest: str) -> str:
    """A page's address."""
    return f"{address}/?{rest}" + ("" if page == FIRST else f"&page={page}")


def settle(tab: Any) -> None:
    """Wait until the page's script has run."""
    tab.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


@pytest.mark.parametrize("width", [400, 1280])
def test_every_page_shows_hostile_labels_harmlessly_and_fits(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    incident: Any,
    width: int,
) -> None:
    """No exception, nothing runs, nothing scrolls sideways; on a telephone at night, too."""
    names = ("tenant", "route", "model", "replica")
    start_s = int(time.time()) - 1_800
    rows = incident(start_s * 10**9, number=60, **dict.fromkeys(names, HOSTILE))
    address = explorer(database(rows))
    scheme = "dark" if width == 400 else "light"
    page = tab(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for each in PAGES:
        page.goto(link(address, each.key, f"from={start_s + 600}&to={start_s + 1_200}"))
        page.locator(".headline").first.wait_for()
        settle(page)
        assert page.locator("h1").inner_text() == each.name
        assert page.locator("[data-testid=stException]").count() == 0, each.key
        assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= width, each.key
        assert page.title() == f"{each.name} · Tailspan"
        assert page.locator("img[src=x]").count() == 0


def test_every_page_opens_on_an_empty_store_and_on_one_that_goes_away(
    explorer: Callable[[str], str], tab: Callable[..., Any], database: Callable[..., str]
) -> None:
    """A sentence each time."""
    url = database()
    address = explorer(url)
    page = tab(viewport={"width": 1280, "height": 900})
    for each in PAGES:
        page.goto(link(address, each.key, "last=15m"))
        page.locator(".headline, .note").first.wait_for()
        settle(page)
        assert page.locator("[data-testid=stException]").count() == 0, each.key
    Path(url.removeprefix("sqlite:///")).unlink()
    for each in PAGES:
        page.goto(link(address, each.key, "last=5m"))
        page.locator(".headline, .note").first.wait_for()
        settle(page)
        assert page.locator("[data-testid=stException]").count() == 0, each.key


def test_every_page_opens_on_a_single_request(
    explorer: Callable[..., str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    one_request: Any,
) -> None:
    """Of which little can be said, and that is said."""
    row = one_request(1, received_unix_ns=time.time_ns() - 60 * 10**9)
    address = explorer(database([row]))
    page = tab(viewport={"width": 400, "height": 900})
    for each in PAGES:
        name = f"&request={row.trace_id}/{row.span_id}" if each.key == "request" else ""
        page.goto(link(address, each.key, f"last=15m{name}"))
        page.locator(".headline").first.wait_for()
        settle(page)
        assert page.locator("[data-testid=stException]").count() == 0, each.key
        assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 400, each.key


@pytest.mark.parametrize("name", ["overview", "requests", "fleet"])
def test_a_store_that_goes_away_in_mid_view_is_told_and_waited_for(
    explorer: Callable[..., str],
    tab: Callable[..., Any],
    fleet: Any,
    postgresql: Any,
    name: str,
) -> None:
    """An open page says it by itself, keeps its address and its controls, and goes on when the
    store is back, without a hand."""
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA away_{name}")
    url = postgresql.url(schema=f"away_{name}")
    fill(url, *fleet(300, time.time_ns() - 290 * 10**9, 280))
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(link(explorer(url), name, "last=5m&tenant=acme"))
    page.locator(".js-plotly-plot").first.wait_for()
    settle(page)
    asked = page.url
    postgresql.stop("immediate")
    try:
        page.locator(".headline", has_text="cannot be read just now").wait_for()
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.url == asked
    finally:
        postgresql.start()
    page.locator(".headline", has_text="cannot be read just now").wait_for(state="detached")
    page.locator(".js-plotly-plot").first.wait_for()
    assert page.url == asked
    assert page.get_by_text("Filters · 1").count() == 1


def test_an_incident_leads_to_its_cause_and_a_chart_can_be_taken_away(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    incident: Any,
) -> None:
    """From the page that opens, in one press: range, baseline and latency are chosen."""
    start_s = int(time.time()) - 2_000
    url = database(incident(start_s * 10**9))
    engine = open_database(url)
    began = start_s + 600
    row = IncidentRow(
        "chat", "page", began + 300, began, start_s + 1_200, None, began + 400, "49/2", "1/50"
    )
    keep_evaluation(engine, "chat", start_s + 1_200, [row])
    engine.dispose()
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{explorer(url)}/?from={start_s}&to={start_s + 1_200}")
    page.locator(".answer.hurt", has_text="SLO “chat” is burning").wait_for()
    page.locator(".st-key-chart_traffic .js-plotly-plot").wait_for()
    settle(page)
    with page.expect_download() as started:
        page.locator(".st-key-csv_traffic button").first.click()
    assert started.value.suggested_filename == "tailspan-traffic.csv"
    assert Path(started.value.path()).read_text().startswith("series,time,value,told\n")
    page.locator("[data-picture=traffic]").focus()
    with page.expect_download() as started:
        page.keyboard.press("Enter")
    assert started.value.suggested_filename == "tailspan-traffic.png"
    assert Path(started.value.path()).read_bytes().startswith(b"\x89PNG")
    page.keyboard.press("Tab")
    with page.expect_download() as started:
        page.keyboard.press("Enter")
    assert started.value.suggested_filename == "tailspan-traffic.csv"
    page.get_by_role("link", name="Find the cause").click()
    page.locator(".cause", has_text="the KV cache is full").wait_for()
    assert page.url.endswith(f"/root-cause?incident=chat%40{began + 300}")
    before = f"{datetime.fromtimestamp(began - 1_800):%H:%M}"
    assert before in page.locator(".note").first.inner_text()


def test_a_messages_link_and_what_decides_survive_a_reload(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    incident: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The link becomes the incident's range; the size decides where the reader says so."""
    file = tmp_path / "chat.yaml"
    file.write_text(chat_openslo("ttft_s <= 60"))
    monkeypatch.setenv(OBJECTIVES_KEY, str(file))
    start_s = int(time.time()) - 2_000
    url = database(incident(start_s * 10**9))
    began, ended = start_s + 600, start_s + 1_200
    row = IncidentRow("chat", "page", began + 300, began, ended, ended, began + 400, "49", None)
    engine = open_database(url)
    keep_evaluation(engine, "chat", ended, [row])
    engine.dispose()
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{explorer(url)}/?page=root-cause&incident=chat@{began + 300}")
    page.locator(".notice", has_text="Choose “size decides” above").wait_for()
    settle(page)
    page.locator(".st-key-decide input").click()
    page.get_by_role("option", name="size decides").click()
    page.locator(".cause", has_text="the KV cache is full").wait_for()
    page.wait_for_url(
        re.compile(f"from={began}&to={ended}&baseline={began - 1_800}(%2F|/){began}.*decide=size")
    )
    page.reload()
    page.locator(".cause", has_text="the KV cache is full").wait_for()
    assert page.locator(".st-key-decide input").input_value() == "size decides"


def test_a_text_that_is_tried_outlives_the_refreshes_of_a_live_page(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    fleet: Any,
) -> None:
    """Also before it is taken."""
    address = explorer(database(*fleet(300, time.time_ns() - 290 * 10**9, 200)))
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/?page=slos&last=5m")
    area = page.locator("textarea")
    area.wait_for()
    area.press_sequentially("nonsense: ")
    told = page.locator(".freshness").inner_text()
    page.wait_for_function(
        "was => document.querySelector('.freshness').innerText !== was", arg=told
    )
    assert "nonsense: " in area.input_value()
    area.press("Control+Enter")
    page.locator(".notice", has_text="1 mistake").wait_for()
    assert "nonsense: " in area.input_value()
