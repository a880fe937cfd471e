"""A browser tab with a person's actions, and checks for errors and layout shifts."""

import re
from typing import Any, Final

SHIFT_LIMIT: Final = 0.1
"""The largest layout shift of a good page: the highest sum in a window of at most 5 s.

Shifts in one window are less than 1 s apart. Source: https://web.dev/articles/cls.
"""

SHIFTS: Final = """
window.shifts = [];
new PerformanceObserver(list => {
    for (const each of list.getEntries()) {
        if (each.hadRecentInput) continue;
        const what = each.sources.map(source => {
            const node = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
            const moved = `${source.previousRect.y} to ${source.currentRect.y}`;
            return `${node?.tagName}.${node?.className} ${node?.innerText?.slice(0, 40)} ${moved}`;
        });
        window.shifts.push({at_s: each.startTime / 1000, value: each.value, what});
    }
}).observe({type: "layout-shift", buffered: true});
"""

STILL: Final = """() => {
    const app = document.querySelector("[data-testid=stApp]");
    if (app?.dataset.testScriptState !== "notRunning") return false;
    if (document.querySelector("[data-stale=true], [data-testid=stSkeleton]")) return false;
    if (document.fonts.status !== "loaded") return false;
    return document.getAnimations().every(each =>
        each.playState !== "running" || each.effect.getComputedTiming().iterations === Infinity);
}"""
"""Returns whether the page is complete and no part of it is faded.

Streamlit loads the code of some elements when they are first drawn, and shows a skeleton until
then. On a busy machine, the script of the page can end before the code of an element has arrived.
"""

GREEN: Final = """() => {
    const green = text => {
        const [red, green, blue, alpha = 1] = (text.match(/[\\d.]+/g) ?? []).map(Number);
        return alpha > 0.2 && green > red + 30 && green > blue + 20;
    };
    const found = [];
    for (const each of document.querySelectorAll(".stMain *")) {
        if (each.closest("svg") || !each.getClientRects().length) continue;
        for (const part of ["", "::before"]) {
            const style = getComputedStyle(each, part || null);
            if (part && style.content === "none") continue;
            const colours = [style.color, style.backgroundColor];
            if (parseFloat(style.borderLeftWidth)) colours.push(style.borderLeftColor);
            if (colours.some(green)) found.push(`${each.className}${part} ${each.innerText}`);
        }
    }
    return found;
}"""
"""Returns every visible element that is drawn in green, except charts."""


class Reader:
    """A tab in which a person reads the explorer.

    Args:
        tab: a new tab.
        address: the explorer's address.
    """

    def __init__(self, tab: Any, address: str) -> None:
        self.tab, self.address = tab, address
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.clicks = 0
        self._complete_s = 0.0
        tab.add_init_script(SHIFTS)
        tab.on("pageerror", lambda error: self.errors.append(str(error)))
        tab.on("console", self._record_console)
        tab.on("request", lambda request: self.asked.append(request.url))

    def _record_console(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} {message.location}")

    def open(self, place: str, title: str | None = None) -> None:
        self.tab.goto(f"{self.address}/{place}")
        self.ready(title)

    def ready(self, title: str | None = None) -> None:
        """Wait until the page is complete and no part of it is faded."""
        if title is not None:
            self.tab.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        self.tab.locator(".headline, .note").first.wait_for()
        self.tab.wait_for_function(STILL)
        self._complete_s = self.tab.evaluate("performance.now() / 1000")

    def click(self, what: Any) -> None:
        """Click, and count the click. Layout shifts are allowed until the next `ready`."""
        self.clicks += 1
        self._complete_s = float("inf")
        what.click()

    def link(self, name: str) -> Any:
        return self.tab.locator(".st-key-pages").get_by_role("link", name=name, exact=True)

    def tab_to(self, what: Any, most: int = 60) -> None:
        for _ in range(most):
            self.tab.keyboard.press("Tab")
            if what.evaluate("each => each === document.activeElement"):
                return
        raise AssertionError(f"{most} Tabs do not reach {what}")

    def drag(self, chart: str, start: float, end: float) -> None:
        """Drag over a part of a chart. `start` and `end` are shares of the chart's width."""
        area = self.tab.locator(f"[class*='st-key-chart_{chart}'] .nsewdrag").first
        area.scroll_into_view_if_needed()
        box = area.bounding_box()
        assert box is not None
        height = box["y"] + box["height"] / 2
        self.tab.mouse.move(box["x"] + box["width"] * start, height)
        self.tab.mouse.down()
        self.tab.mouse.move(box["x"] + box["width"] * end, height + 10, steps=8)
        self.tab.mouse.up()

    def green(self) -> list[str]:
        found: list[str] = self.tab.evaluate(GREEN)
        return found

    def shift(self) -> tuple[float, list[str]]:
        """Return the layout shift since the page was complete, and the elements that moved.

        Earlier shifts depend on the load of the machine.
        """
        worst, now = (0.0, []), (0.0, [])  # type: tuple[float, list[str]], tuple[float, list[str]]
        began_s = last_s = float("-inf")
        for each in self.tab.evaluate("window.shifts"):
            if each["at_s"] < self._complete_s:
                continue
            if each["at_s"] - last_s >= 1 or each["at_s"] - began_s > 5:
                began_s, now = each["at_s"], (0.0, [])
            last_s = each["at_s"]
            now = (now[0] + each["value"], [*now[1], *each["what"]])
            worst = max(worst, now, key=lambda each: each[0])
        return worst

    def undisturbed(self) -> None:
        """Assert that there was no console error, exception, foreign request or layout shift."""
        assert not self.errors
        assert self.tab.locator("[data-testid=stException]").count() == 0
        host = re.sub("^http", "", self.address)
        own = (f"http{host}", f"ws{host}", "data:", "blob:")
        assert not [url for url in self.asked if not url.startswith(own)]
        shifted, what = self.shift()
        assert shifted <= SHIFT_LIMIT, what
