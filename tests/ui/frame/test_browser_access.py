import time
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
def test_axe_finds_nothing_wrong_on_any_page(browse: Any, fleet: Any, scheme: str) -> None:
    rows, samples = fleet(1500, time.time_ns() - 590 * 10**9, 580, simulated=True)
    address, page = browse(rows, samples, color_scheme=scheme)
    found = {}
    for each in PAGES:
        key = "" if each.key == FIRST else f"&page={each.key}"
        if each.key == "request":
            key += f"&request={rows[-1].trace_id}/{rows[-1].span_id}"
        page.goto(f"{address}/?last=15m{key}")
        page.locator(".headline").first.wait_for()
        page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
        page.wait_for_timeout(500)  # charts fade in, and have little contrast until then
        for wrong in axe.Axe().run(page).response["violations"]:
            if wrong["id"] not in DRAWN_ELSEWHERE:
                where = [node["target"] for node in wrong["nodes"][:3]]
                found[f"{each.key}: {wrong['id']}"] = where
    assert not found
