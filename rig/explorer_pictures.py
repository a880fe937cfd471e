"""Take pictures of the explorer's pages, with a simulated fleet and a current incident.

    python -m rig.explorer_pictures docs/images [--page overview] [--wait 120]

Each page gets three pictures: light theme, dark theme (-dark), narrow screen (-narrow).
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from rig.program import Tailspan
from ui.frame.pages import FIRST, PAGES

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run")
LOOKS: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "-dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "-narrow": {"viewport": {"width": 400, "height": 850}, "color_scheme": "light"},
}
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'
MORE = {"slos": "&by=hour", "what-if": "&change=replicas=3"}
SETTLES_MS = 1_500


def take(
    browser: Any, address: str, page: str, look: str, file: Path, at_s: int | None = None
) -> Path:
    """Take a picture of a whole page."""
    context = browser.new_context(**LOOKS[look])
    tab = context.new_page()
    tab.set_default_timeout(60_000)
    more = "" if at_s is None else f"&to={at_s}"
    opened = "requests" if page == "request" else page
    if opened != FIRST:
        more += f"&page={opened}{MORE.get(opened, '')}"
    tab.goto(f"{address}/?last=1h{more}")
    if page == "request":  # select one of the slowest requests
        tab.locator("a[data-key]").first.click()
        tab.wait_for_url("**/request?**")
    tab.locator(".headline").first.wait_for()
    tab.wait_for_selector(READY)
    if page == "slos":
        _try_a_change(tab)
    tab.wait_for_timeout(SETTLES_MS)
    # Streamlit scrolls the page inside a frame, so make the window as high as the content.
    height = tab.evaluate("document.querySelector('.stMainBlockContainer').scrollHeight")
    tab.set_viewport_size({"width": LOOKS[look]["viewport"]["width"], "height": height + 20})
    tab.wait_for_timeout(SETTLES_MS)
    tab.screenshot(path=file)
    context.close()
    with Image.open(file) as taken:
        taken.quantize(200).save(file, optimize=True)
    return file


def _try_a_change(tab: Any) -> None:
    text = tab.locator("textarea")
    text.fill(text.input_value().replace("ttft_s <= 0.5", "ttft_s <= 1"))
    text.press("Control+Enter")
    tab.get_by_text("Effect on the selected range").wait_for()
    tab.wait_for_selector(READY)


def main() -> None:
    """Take the pictures of all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", choices=[page.key for page in PAGES], action="append")
    parser.add_argument(
        "--wait", type=float, default=120, help="seconds to wait until the simulated past is stored"
    )
    parser.add_argument("--address", help="address of a running explorer, instead of starting one")
    parser.add_argument(
        "--at", type=int, help="end of the pages' time range in unix seconds; default: now"
    )
    arguments = parser.parse_args()
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium; install it with: apt-get install chromium"
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        up, address = None, arguments.address
        if address is None:
            database = f"sqlite:///{scratch}/pictures.db"
            words = ("up", "--simulate", "--database", database, "--explorer-port=0")
            up = Tailspan(Path(scratch), *words)
            address = up.address("explorer")
            time.sleep(arguments.wait)
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for page in arguments.page or [each.key for each in PAGES]:
            for look in LOOKS:
                file = arguments.folder / f"{page}{look}.png"
                print(take(browser, address, page, look, file, arguments.at), flush=True)
        browser.close()
        if up is not None:
            up.stop()


if __name__ == "__main__":
    main()
