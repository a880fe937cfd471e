import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from store.alerting.incidents import store_evaluation
from store.database import open_database
from telemetry.incidents import IncidentRow
from tests.chat_objective import chat_openslo
from tests.ui.conftest import fill
from tests.ui.reader import Reader
from ui.frame.pages import PAGES

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

HOSTILE = (
    "<img src=x onerror='document.title=\"owned\"'><script>document.title='owned'</script>\u202e"
    "![x](http://evil.example/a.png) [a](http://evil.example/b) http://evil.example/c"
    ' <a href="http://evil.example/d">x</a><img src="http://evil.example/e.png">'
    " $\\LaTeX$ :smile: :red[x] `x` **x**" + "w" * 3_000
)
EVIL = """() => [...document.querySelectorAll("*")].flatMap(
    node => ["href", "src", "xlink:href", "srcset", "style"].map(name => node.getAttribute(name))
).filter(value => value && value.includes("evil"))"""
"""Returns the attributes that would call another host."""


def settle(tab: Any) -> None:
    tab.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


def test_every_page_escapes_labels_fits_and_calls_no_other_host(
    browse: Any, incident: Any, fleet: Any
) -> None:
    """A request to another host would reveal the reader and the page."""
    names = ("tenant", "route", "model", "replica", "region", "lora", "request_id", "error_type")
    start_s = int(time.time()) - 1_800
    rows = incident(
        start_s * 10**9,
        number=60,
        prefill_others_prefill_s=0.05,
        **dict.fromkeys(names, HOSTILE),
    )
    _, (sample, *_) = fleet(1, rows[-1].received_unix_ns, 10)
    address, page = browse(rows, [replace(sample, replica=HOSTILE)], width=400, color_scheme="dark")
    reader = Reader(page, address)
    page.on("websocket", lambda websocket: reader.asked.append(websocket.url))
    place = f"from={start_s + 600}&to={start_s + 1_200}&per=tenant"

    def fits(title: str) -> None:
        reader.ready(title)
        for closed in page.locator("details summary").all():
            closed.click()
        assert page.locator("[data-testid=stException]").count() == 0, title
        # Until its style has loaded, a table is wider.
        page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
        assert page.title() == f"{title} · Tailspan"
        assert page.locator("img[src=x], .katex, .stMarkdownColoredText").count() == 0
        assert page.evaluate(EVIL) == [], title

    reader.open(f"?{place}")
    for each in PAGES:
        reader.link(each.name).click()
        fits(each.name)
    reader.link("Fleet").click()
    fits("Fleet")
    page.locator("td a", has_text="<img").first.click()
    fits("Requests")
    page.locator("a[data-key]", has_text="<img src=x").first.click()
    fits("Request")
    assert "<img src=x" in page.locator(".headline").first.inner_text()
    asked = {url for url in reader.asked if not url.startswith(("data:", "blob:"))}
    assert {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}
    assert {urlsplit(url).scheme for url in asked} == {"http", "ws"}


def test_the_band_does_not_cover_the_navigation_on_a_phone(browse: Any, fleet: Any) -> None:
    rows, samples = fleet(300, time.time_ns() - 290 * 10**9, 280, simulated=True)
    address, page = browse(rows, samples, width=390)
    Reader(page, address).open("?last=5m")
    settle(page)
    band, link = page.locator(".band"), page.locator(".st-key-pages a").first
    link.wait_for()
    band_box, link_box = band.bounding_box(), link.bounding_box()
    assert band_box["y"] + band_box["height"] <= link_box["y"]


@pytest.mark.timeout(300)
def test_an_unavailable_store_is_waited_for(
    explorer: Any, tab: Any, fleet: Any, postgresql: Any
) -> None:
    url = postgresql.new_url("away")
    fill(url, *fleet(300, time.time_ns() - 290 * 10**9, 280))
    address = explorer(url)
    pages = []
    for path in ("", "requests"):
        page = tab(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/{path}?last=5m&tenant=acme")
        page.locator(".js-plotly-plot").first.wait_for()
        settle(page)
        pages.append((page, page.url))
    postgresql.stop("immediate")
    try:
        for page, asked in pages:
            # With two pages on a busy machine, a refresh may take a minute.
            page.locator(".headline", has_text="cannot be read").wait_for(timeout=120_000)
            assert page.locator("[data-testid=stException]").count() == 0
            assert page.url == asked
    finally:
        postgresql.start()
    for page, asked in pages:
        page.locator(".headline", has_text="cannot be read").wait_for(state="detached")
        page.locator(".js-plotly-plot").first.wait_for()
        assert page.url == asked
        assert page.get_by_text("Filters · 1").count() == 1


def test_the_incident_of_a_link_survives_a_reload(
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
    store_evaluation(engine, "chat", ended, [row])
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
