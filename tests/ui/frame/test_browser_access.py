"""Pages for those who do not see as others do, or have no mouse: axe-core, in a real browser."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from ui.frame.pages import FIRST, PAGES

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

DRAWN_ELSEWHERE = ("region",)
"""What Streamlit's own frame decides: which parts of the page are landmarks."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong_on_any_page(
    explorer: Callable[..., str],
    tab: Callable[..., Any],
    database: Callable[..., str],
    fleet: Any,
    scheme: str,
) -> None:
    """Contrast, names of what can be pressed, order of headings, heads of tables."""
    rows, samples = fleet(1500, time.time_ns() - 590 * 10**9, 580, simulated=True)
    address = explorer(database(rows, samples))
    page = tab(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    found = {}
    for each in PAGES:
        key = "" if each.key == FIRST else f"&page={each.key}"
        if each.key == "request":
            key += f"&request={rows[-1].trace_id}/{rows[-1].span_id}"
        page.goto(f"{address}/?last=15m{key}")
        page.locator(".headline").first.wait_for()
        page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
        page.wait_for_timeout(500)  # what is drawn fades in, and is pale until then
        for wrong in axe.Axe().run(page).response["violations"]:
            if wrong["id"] not in DRAWN_ELSEWHERE:
                where = [node["target"] for node in wrong["nodes"][:3]]
                found[f"{each.key}: {wrong['id']}"] = where
    assert not found
