import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.openslo.reader import ENVIRONMENT_KEY as OBJECTIVES_KEY
from store.alerting.incidents import IncidentRow, store_evaluation
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
    return f"{address}/?{rest}" + ("" if page == FIRST else f"&page={page}")


def settle(tab: Any) -> None:
    tab.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


def test_every_page_escapes_labels_and_fits(browse: Any, incident: Any, fleet: Any) -> None:
    names = ("tenant", "route", "model", "replica", "request_id", "error_type")
    start_s = int(time.time()) - 1_800
    rows = incident(
        start_s * 10**9,
        number=60,
        prefill_others_prefill_s=0.05,
        **dict.fromkeys(names, HOSTILE),
    )
    _, (sample, *_) = fleet(1, rows[-1].received_unix_ns, 10)
    address, page = browse(rows, [replace(sample, replica=HOSTILE)], width=400, color_scheme="dark")
    place = f"from={start_s + 600}&to={start_s + 1_200}"

    def fits(title: str) -> None:
        page.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        page.locator(".headline").first.wait_for()
        settle(page)
        assert page.locator("[data-testid=stException]").count() == 0, title
        # Until its style has loaded, a table is wider.
        page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
        assert page.title() == f"{title} · Tailspan"
        assert page.locator("img[src=x]").count() == 0

    for each in PAGES:
        page.goto(link(address, each.key, place))
        fits(each.name)
    page.goto(link(address, "fleet", place))
    page.locator("td a", has_text="<img").first.click()
    fits("Requests")
    page.locator("a[data-key]", has_text="<img src=x").first.click()
    fits("Request")
    assert "<img src=x" in page.locator(".headline").first.inner_text()


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


@pytest.mark.timeout(300)
def test_an_unavailable_store_is_waited_for(
    explorer: Any, tab: Any, fleet: Any, postgresql: Any
) -> None:
    url = postgresql.new_url("away")
    fill(url, *fleet(300, time.time_ns() - 290 * 10**9, 280))
    address = explorer(url)
    pages = []
    for name in ("overview", "requests", "fleet"):
        page = tab(viewport={"width": 1280, "height": 900})
        page.goto(link(address, name, "last=5m&tenant=acme"))
        page.locator(".js-plotly-plot").first.wait_for()
        settle(page)
        pages.append((page, page.url))
    postgresql.stop("immediate")
    try:
        for page, asked in pages:
            # On a busy machine, a refresh of three pages may take a minute.
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
