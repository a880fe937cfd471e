import base64
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


CORNER = """async encoded => {
    const image = new Image();
    image.src = `data:image/png;base64,${encoded}`;
    await image.decode();
    const surface = document.createElement("canvas").getContext("2d");
    surface.drawImage(image, 0, 0);
    const chart = document.querySelector(".st-key-chart_traffic .js-plotly-plot");
    const title = chart.layout.title?.text ?? null;
    return [[...surface.getImageData(1, 1, 1, 1).data], title];
}"""
"""The colour in a picture's corner, and the title of the chart it was taken from."""


def link(address: str, page: str, rest: str) -> str:
    return f"{address}/?{rest}" + ("" if page == FIRST else f"&page={page}")


def settle(tab: Any) -> None:
    tab.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


@pytest.mark.parametrize("width", [400, 1280])
def test_every_page_escapes_labels_and_fits(browse: Any, incident: Any, width: int) -> None:
    names = ("tenant", "route", "model", "replica")
    start_s = int(time.time()) - 1_800
    rows = incident(start_s * 10**9, number=60, **dict.fromkeys(names, HOSTILE))
    scheme = "dark" if width == 400 else "light"
    address, page = browse(rows, width=width, color_scheme=scheme)
    for each in PAGES:
        page.goto(link(address, each.key, f"from={start_s + 600}&to={start_s + 1_200}"))
        page.locator(".headline").first.wait_for()
        settle(page)
        assert page.locator("h1").inner_text() == each.name
        assert page.locator("[data-testid=stException]").count() == 0, each.key
        assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= width, each.key
        assert page.title() == f"{each.name} · Tailspan"
        assert page.locator("img[src=x]").count() == 0


def test_every_page_opens_without_data_or_store(browse: Any, tmp_path: Path) -> None:
    address, page = browse()
    for last in ("15m", "5m"):
        for each in PAGES:
            page.goto(link(address, each.key, f"last={last}"))
            page.locator(".headline, .note").first.wait_for()
            settle(page)
            assert page.locator("[data-testid=stException]").count() == 0, each.key
        for file in tmp_path.glob("made-*.db"):
            file.unlink()


def test_every_page_opens_on_a_single_request(browse: Any, one_request: Any) -> None:
    row = one_request(1, received_unix_ns=time.time_ns() - 60 * 10**9)
    address, page = browse([row], width=400)
    for each in PAGES:
        name = f"&request={row.trace_id}/{row.span_id}" if each.key == "request" else ""
        page.goto(link(address, each.key, f"last=15m{name}"))
        page.locator(".headline").first.wait_for()
        settle(page)
        assert page.locator("[data-testid=stException]").count() == 0, each.key
        assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 400, each.key


@pytest.mark.parametrize("name", ["overview", "requests", "fleet"])
def test_a_store_that_goes_away_is_waited_for(
    explorer: Any, tab: Any, fleet: Any, postgresql: Any, name: str
) -> None:
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
        page.locator(".headline", has_text="cannot be read").wait_for()
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.url == asked
    finally:
        postgresql.start()
    page.locator(".headline", has_text="cannot be read").wait_for(state="detached")
    page.locator(".js-plotly-plot").first.wait_for()
    assert page.url == asked
    assert page.get_by_text("Filters · 1").count() == 1


def test_an_incident_leads_to_cause(explorer: Any, tab: Any, database: Any, incident: Any) -> None:
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
    assert Path(started.value.path()).read_text().startswith("series,time in ")
    page.locator("[data-picture=traffic]").focus()
    with page.expect_download() as started:
        page.keyboard.press("Enter")
    assert started.value.suggested_filename == "tailspan-traffic.png"
    picture = Path(started.value.path()).read_bytes()
    assert picture.startswith(b"\x89PNG")
    corner, shown_title = page.evaluate(CORNER, base64.b64encode(picture).decode())
    assert corner == [255, 255, 255, 255], "a picture is opaque"
    assert shown_title is None, "the page's own chart has no title"
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
    explorer: Any,
    tab: Any,
    database: Any,
    incident: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
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
    page.locator(".notice", has_text="Select “size decides” above").wait_for()
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


def test_an_edited_text_survives_live_refreshes(browse: Any, fleet: Any) -> None:
    address, page = browse(*fleet(300, time.time_ns() - 290 * 10**9, 200))
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


def test_a_copied_link_shows_the_range_that_was_shown(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    fleet: Any,
) -> None:
    """Also later, though the page goes on; from a link of the past one returns to the present."""
    address = explorer(database(*fleet(500, time.time_ns() - 600 * 10**9, 590)))
    page = tab(viewport={"width": 1280, "height": 900})
    page.add_init_script("navigator.clipboard.writeText = async text => { window.copied = text; }")
    page.goto(f"{address}/requests?last=15m&tenant=acme")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Link copied").wait_for()
    copied = page.evaluate("window.copied")
    assert re.fullmatch(rf"{address}/requests\?last=15m&to=\d+&tenant=acme", copied)
    page.goto(copied)
    page.locator(".paused").wait_for()
    page.get_by_role("button", name="Resume live").click()
    page.locator(".live, .stale").wait_for()
    assert page.url == f"{address}/requests?last=15m&tenant=acme"


def test_on_a_telephone_the_finding_stands_before_the_controls(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    fleet: Any,
) -> None:
    """On a wide page after them, where both are in sight."""
    address = explorer(database(*fleet(500, time.time_ns() - 600 * 10**9, 590)))
    for width, first in ((400, True), (1_280, False)):
        page = tab(viewport={"width": width, "height": 850})
        page.goto(f"{address}/requests?last=15m&tenant=acme")
        page.locator("a[data-key]").first.wait_for()
        settle(page)
        finding, controls, chips = (
            page.locator(each).first.bounding_box()["y"]
            for each in (".headline", ".st-key-controls", ".st-key-chips")
        )
        assert (finding < controls) == first
        assert controls < chips


def test_the_field_keeps_the_focus_after_enter(
    explorer: Callable[[str], str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    fleet: Any,
) -> None:
    """So that a mistyped id can be corrected without the mouse."""
    address = explorer(database(*fleet(50, time.time_ns() - 600 * 10**9, 590)))
    page = tab(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/request")
    field = page.get_by_role("textbox", name="Request")
    field.fill("chatcmpl-none")
    page.keyboard.press("Enter")
    page.locator(".headline", has_text="No request is called").wait_for()
    settle(page)
    assert field.evaluate("each => each === document.activeElement")
