"""Tests that use the explorer in Chromium as a person does.

All tests share one explorer and one simulated fleet. The first test reads live pages while rows
arrive, and then stops the fleet. Later tests read a frozen range, and the last test reads stale
pages.
"""

import base64
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from tests.ui.conftest import running_explorer
from tests.ui.live_fleet import LiveFleet
from tests.ui.reader import Reader
from ui.frame.pages import PAGES

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ZONE: Final = "Asia/Tokyo"
WIDE: Final = {"width": 1280, "height": 900}
NARROW: Final = {"width": 400, "height": 850}
DRAWN_ELSEWHERE: Final = ("region",)
"""Rules that Streamlit's own frame breaks: which parts of the page are landmarks."""
OF_A_LAYOUT: Final = ("color-contrast", "target-size", "scrollable-region-focusable")
"""Rules that depend on the colours and the width, besides the content."""
GUIDE: Final = Path(__file__).parents[3] / "docs" / "explorer.md"
MAX_CLICKS: Final = 4

STREAM: Final = re.compile("/_stcore/stream")
CORNER: Final = """async encoded => {
    const image = new Image();
    image.src = `data:image/png;base64,${encoded}`;
    await image.decode();
    const surface = document.createElement("canvas").getContext("2d");
    surface.drawImage(image, 0, 0);
    const chart = document.querySelector(".st-key-chart_percentiles .js-plotly-plot");
    const title = chart.layout.title?.text ?? null;
    return [[...surface.getImageData(1, 1, 1, 1).data], title];
}"""
"""Returns the colour in a picture's corner, and the title of the picture's chart."""

DARK: Final = """() => {
    const colour = getComputedStyle(document.querySelector("[data-testid=stApp]")).backgroundColor;
    return colour.match(/\\d+/g).slice(0, 3).every(part => part < 60);
}"""

Open = Callable[..., Reader]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFleet]:
    with LiveFleet(f"sqlite:///{tmp_path_factory.mktemp('fleet') / 'walk.db'}") as running:
        yield running


@pytest.fixture(scope="module")
def address(live: LiveFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_explorer(tmp_path_factory.mktemp("explorer"), live.url) as running:
        yield running


@pytest.fixture(scope="module")
def frozen(live: LiveFleet) -> str:
    """Return the query of a fixed range of 15 min that contains the incident's start."""
    return f"last=15m&to={live.began_unix_s + 290}"


@pytest.fixture
def reader(tab: Callable[..., Any], address: str) -> Open:
    """Return a function that opens a tab with a new browser profile."""

    def open_tab(**options: Any) -> Reader:
        about = {"viewport": WIDE, "timezone_id": ZONE, **options}
        return Reader(tab(**about), address)

    return open_tab


def accessible(reader: Reader, where: str, *rules: str) -> dict[str, list[Any]]:
    """Return the accessibility errors that axe-core finds on the page, by all or some rules."""
    found = axe.Axe().run(reader.tab, options={"runOnly": rules} if rules else None)
    return {
        f"{where}: {each['id']}": [node["target"] for node in each["nodes"][:3]]
        for each in found.response["violations"]
        if each["id"] not in DRAWN_ELSEWHERE
    }


def headline(reader: Reader) -> str:
    text: str = reader.tab.locator(".headline").first.inner_text()
    return text


def _quiet(live: LiveFleet) -> str:
    """Return the query of the 5 min before the incident."""
    return f"last=5m&to={live.began_unix_s}"


def test_live_pages_move_nothing_and_lose_no_input(reader: Open, live: LiveFleet) -> None:
    """Playwright runs minutes of the browser's clock within seconds.

    The server uses the real time. So the pages refresh as often as in those minutes, but only the
    rows of some seconds arrive.
    """
    person = reader()
    person.tab.clock.install()
    connections: list[Any] = []

    def connect(one: Any) -> None:
        connections.append(one)
        one.connect_to_server()

    person.tab.route_web_socket(STREAM, connect)

    def two_minutes() -> None:
        for _ in range(4):
            person.tab.clock.run_for(30_000)
            person.tab.locator("[data-test-script-state=notRunning]").wait_for()

    person.open("?last=5m", "Overview")  # first, because the fleet has rows for minutes only
    shown = person.tab.locator(".freshness").inner_text()
    two_minutes()
    elements = person.tab.locator("*").count()
    two_minutes()
    person.tab.wait_for_function(
        "was => document.querySelector('.freshness').innerText !== was", arg=shown
    )
    person.tab.locator(".freshness .live").wait_for()
    assert person.tab.locator("*").count() < 1.1 * elements
    person.undisturbed()

    person.open("slos?last=5m", "SLOs")
    area = person.tab.locator("textarea")
    area.press_sequentially("nonsense: ")
    two_minutes()
    assert "nonsense: " in area.input_value()
    area.press("Control+Enter")
    person.tab.locator(".notice", has_text="1 error").wait_for()
    assert "nonsense: " in area.input_value()
    person.undisturbed()

    person.open("what-if?last=5m", "What if")
    field = person.tab.get_by_role("textbox", name="More changes")
    field.press_sequentially("rate=tenant=acme:0.5x")
    two_minutes()
    assert field.input_value() == "rate=tenant=acme:0.5x"
    person.undisturbed()

    # A page without a connection must not look current.
    person.open("?last=5m", "Overview")
    person.tab.route_web_socket(STREAM, lambda each: each.close())
    for each in connections:
        each.close()
    person.tab.clock.run_for(60_000)
    person.tab.locator("body.lost").wait_for(state="attached")
    assert person.green() == []
    live.stop()


# Ten tasks of an engineer on call. Each task starts on the Overview.


def _cause(reader: Reader, live: LiveFleet) -> None:
    assert "acme" in reader.tab.locator(".why .cause").first.inner_text()


def _delayer(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.link("Cost"))
    reader.click(reader.tab.locator("table.payers a", has_text="umbrella"))
    reader.ready("Requests")
    reader.click(reader.tab.locator("a[data-key]").first)
    reader.ready("Request")
    assert "acme" in reader.tab.locator("table", has_text="delayed by tenant").inner_text()


def _tenant_cost(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.link("Cost"))
    row = reader.tab.locator("table.payers tr", has_text="acme").first
    assert re.search(r"\$[\d.]+", row.locator("td").nth(3).inner_text())


def _replica(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.link("Fleet"))
    reader.tab.locator(".note", has_text=re.compile("^Latency is (even|uneven): ")).wait_for()


def _objective(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.link("SLOs"))
    area = reader.tab.locator("textarea")
    reader.click(area)
    area.fill(area.input_value().replace("ttft_s <= 0.5", "ttft_s <= 0.8"))
    area.press("Control+Enter")
    reader.tab.locator(".why", has_text="Effect on the selected range").wait_for()


def _another_replica(reader: Reader, live: LiveFleet) -> None:
    reader.open(f"?{_quiet(live)}", "Overview")  # few requests, because the replay takes long
    reader.click(reader.link("What if"))
    field = reader.tab.locator(".st-key-what_if_replicas")
    reader.click(field.get_by_test_id("stNumberInputStepUp"))
    reader.click(reader.tab.get_by_role("button", name="Predict"))
    reader.tab.locator(".headline", has_text="With replicas=3").wait_for()


def _budget(reader: Reader, live: LiveFleet) -> None:
    text = reader.tab.locator(".slo", has_text="error budget").first.inner_text()
    assert re.search(r"[\d.]+ % of the error budget of 30d left", text)


def _cancelled(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.link("Requests"))
    reader.click(reader.tab.locator(".outcomes a", has_text="abort"))
    reader.tab.get_by_role("button", name="outcome abort").wait_for()
    reader.tab.locator("a[data-key]").first.wait_for()


def _began(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.tab.get_by_role("link", name="Find the cause"))
    reader.ready("Root cause")
    at = re.search(r"Incident chat since [\d-]+ (\d\d:\d\d):", headline(reader))
    began = datetime.fromtimestamp(live.began_unix_s, ZoneInfo(ZONE))
    near = [f"{began + timedelta(minutes=off):%H:%M}" for off in range(-1, 3)]
    assert at is not None
    assert at[1] in near
    reader.tab.locator(".cause", has_text="acme").first.wait_for()


def _sent(reader: Reader, live: LiveFleet) -> None:
    reader.click(reader.tab.get_by_role("button", name="Copy link"))
    reader.tab.get_by_role("button", name="Link copied").wait_for()


TASKS: Final = {
    "Which tenant caused the incident?": _cause,
    "How much error budget is left?": _budget,
    "How do I send this page to a colleague?": _sent,
    "Which request of a tenant was slowest, and who delayed it?": _delayer,
    "What does a tenant cost per hour?": _tenant_cost,
    "Is one replica worse than the others?": _replica,
    "How many requests would have missed an objective of 800 ms?": _objective,
    "How would one more replica change the latencies?": _another_replica,
    "Which requests were cancelled?": _cancelled,
    "When did the incident begin, and what changed then?": _began,
}


def test_ten_tasks_take_at_most_four_clicks(reader: Open, live: LiveFleet, frozen: str) -> None:
    """The guide states the same number of clicks."""
    person = reader()
    person.tab.add_init_script("navigator.clipboard.writeText = async text => {}")
    counted = {}
    for task, do in TASKS.items():
        if person.tab.url.endswith(f"?{frozen}"):
            person.link("Overview").click()
            person.ready("Overview")
        else:
            person.open(f"?{frozen}", "Overview")
        person.clicks = 0
        do(person, live)
        counted[task] = person.clicks
        person.ready()
        person.undisturbed()
    assert max(counted.values()) <= MAX_CLICKS
    values = dict(re.findall(r"^\| ([^|]+\?) \| .+ \| (\d) \|$", GUIDE.read_text(), re.MULTILINE))
    assert values == {task: str(clicks) for task, clicks in counted.items()}


def test_every_page_by_mouse_back_forward_and_reload(reader: Open, frozen: str) -> None:
    person = reader(color_scheme="light")
    person.open(f"?{frozen}&tenant=acme", "Overview")
    wrong: dict[str, list[Any]] = {}
    for each in PAGES:
        person.link(each.name).click()
        person.ready(each.name)
        wrong |= accessible(person, each.key)
        assert person.tab.title() == f"{each.name} · Tailspan"
        person.undisturbed()
    assert not wrong

    def shows(title: str, length: str) -> None:
        person.tab.wait_for_url(f"**last={length}*")
        person.tab.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        person.tab.locator("[aria-checked=true]", has_text=length).wait_for()
        person.tab.locator("[data-test-script-state=notRunning]").wait_for()

    person.open(f"fleet?{frozen}", "Fleet")
    person.tab.get_by_role("radio", name="1h", exact=True).click()
    shows("Fleet", "1h")
    person.link("Requests").click()
    shows("Requests", "1h")
    entries = person.tab.evaluate("history.length")
    person.tab.go_back()
    shows("Fleet", "1h")
    person.tab.go_back()
    shows("Fleet", "15m")
    # The reader goes forward and back before the server has responded.
    for _ in range(2):
        person.tab.go_forward(wait_until="commit")
    shows("Requests", "1h")
    person.tab.reload()
    shows("Requests", "1h")
    for _ in range(2):
        person.tab.go_back(wait_until="commit")
    shows("Fleet", "15m")
    person.tab.go_forward()
    shows("Fleet", "1h")
    person.tab.go_forward()
    shows("Requests", "1h")
    person.tab.wait_for_timeout(500)
    assert person.tab.evaluate("history.length") == entries

    row = person.tab.locator("a[data-key]").nth(3)
    key, name = row.get_attribute("data-key"), row.inner_text()
    row.click()
    person.ready("Request")
    assert f"request={key}" in person.tab.url
    assert name in headline(person)
    person.tab.go_back()
    shows("Requests", "1h")
    # From a link to an unknown incident, one step back leads to the previous page.
    person.open("?page=why&incident=unknown@1", "Root cause")
    person.tab.go_back()
    shows("Requests", "1h")
    person.undisturbed()


def test_links_fields_and_buttons_by_keyboard_alone(reader: Open, frozen: str) -> None:
    person = reader(color_scheme="light")
    person.open(f"?{frozen}", "Overview")
    person.tab_to(person.link("Request"))
    person.tab.keyboard.press("Enter")
    person.ready("Request")
    # After Enter, the field keeps the focus, so that the reader can correct an id.
    field = person.tab.get_by_role("textbox", name="Request")
    person.tab_to(field)
    person.tab.keyboard.type("chatcmpl-none")
    person.tab.keyboard.press("Enter")
    person.tab.locator(".headline", has_text="No request has the id").wait_for()
    person.ready()
    assert field.evaluate("each => each === document.activeElement")
    person.open(f"requests?{frozen}", "Requests")
    person.tab_to(person.tab.locator("[data-picture=percentiles]"))
    files = {}
    for name in ("png", "csv"):
        with person.tab.expect_download() as started:
            person.tab.keyboard.press("Enter")
        assert started.value.suggested_filename == f"tailspan-percentiles.{name}"
        files[name] = Path(started.value.path()).read_bytes()
        person.tab.keyboard.press("Tab")
    assert files["csv"].startswith(f'series,"time in {ZONE}'.encode())
    corner, title = person.tab.evaluate(CORNER, base64.b64encode(files["png"]).decode())
    assert corner == [255, 255, 255, 255], "a picture is opaque"
    assert title is None, "the page's own chart has no title"
    person.tab_to(person.tab.get_by_role("button", name="Filters"))
    person.tab.keyboard.press("Enter")
    person.tab_to(person.tab.get_by_role("combobox", name=re.compile("Tenant")))
    person.tab.keyboard.type("umbrella")
    person.tab.keyboard.press("Enter")
    person.tab.wait_for_url("**tenant=umbrella*")
    person.ready()
    person.tab.keyboard.press("Escape")
    person.tab_to(person.tab.get_by_role("button", name="tenant umbrella"))
    person.tab.keyboard.press("Enter")
    person.tab.wait_for_url(lambda url: "tenant" not in url)
    person.undisturbed()


def test_two_viewers_with_filters_and_a_link_in_a_fresh_browser(reader: Open, frozen: str) -> None:
    one, other = reader(), reader()
    one.tab.add_init_script(
        "navigator.clipboard.writeText = async text => { window.copied = text }"
    )
    one.open(f"requests?{frozen}", "Requests")
    everybody = headline(one)
    one.tab.get_by_role("button", name="Filters").click()
    one.tab.get_by_role("combobox", name=re.compile("Tenant")).click()
    one.tab.get_by_role("option", name="umbrella").click()
    one.tab.wait_for_url("**tenant=umbrella*")
    one.tab.keyboard.press("Escape")
    one.ready()
    filtered = headline(one)
    assert filtered != everybody
    other.open(f"requests?{frozen}&tenant=globex&outcome=stop", "Requests")
    globex = headline(other)
    assert globex not in (everybody, filtered)
    one.tab.get_by_role("button", name="Copy link").click()
    one.tab.get_by_role("button", name="Link copied").wait_for()
    fresh = reader()
    fresh.open(one.tab.evaluate("window.copied").removeprefix(f"{one.address}/"), "Requests")
    assert headline(fresh) == filtered
    assert fresh.tab.locator(".paused").count() == 1
    one.tab.get_by_role("button", name="tenant umbrella").click()
    one.tab.wait_for_url(lambda url: "tenant" not in url)
    one.ready()
    assert headline(one) == everybody
    other.tab.get_by_role("button", name="Clear all").click()
    other.tab.wait_for_url(lambda url: "tenant" not in url)
    other.ready()
    assert headline(other) == everybody
    fresh.tab.get_by_role("button", name="Resume live").click()
    fresh.tab.locator(".live, .stale").wait_for()
    fresh.ready()
    assert re.search(r"/requests\?last=15m&tenant=umbrella$", fresh.tab.url)
    for each in (one, other, fresh):
        each.undisturbed()


DRAGGED: Final = (
    ("Overview", "ttft_s"),
    ("SLOs", "compliance_chat"),
    ("Root cause", "shape"),
    ("Requests", "engines"),
    ("Fleet", "side_by_side"),
    ("Cost", "bill_over_time"),
)


def test_a_drag_offers_actions(reader: Open, frozen: str) -> None:
    """Every page with a chart over time offers the same actions."""
    person = reader(color_scheme="light")
    person.open(f"?{frozen}&by=hour")
    for page, chart in DRAGGED:
        person.link(page).click()
        person.ready(page)
        person.tab.locator(".selected").wait_for(state="detached")
        person.drag(chart, 0.5, 0.9)
        person.tab.locator(".selected").wait_for()
        person.ready()
    assert not accessible(person, "drag")
    person.tab.emulate_media(color_scheme="dark")
    person.tab.wait_for_function(DARK)
    person.ready()
    assert not accessible(person, "drag in dark mode", *OF_A_LAYOUT)
    end = int(frozen.partition("to=")[2])
    person.tab.get_by_role("button", name="Explain it").click()
    person.ready("Root cause")
    asked = dict(part.split("=") for part in person.tab.url.partition("?")[2].split("&"))
    assert abs(int(asked["from"]) - (end - 450)) < 60
    assert abs(int(asked["to"]) - (end - 90)) < 60
    assert person.tab.locator(".selected").count() == 0
    person.undisturbed()


def test_every_page_dark_on_a_telephone(reader: Open, frozen: str, live: LiveFleet) -> None:
    person = reader(viewport=NARROW, color_scheme="dark", has_touch=True)
    wrong: dict[str, list[Any]] = {}
    asked = {
        "what-if": f"{_quiet(live)}&change=replicas=3",
        "requests": f"{frozen}&tenant=acme&outcome=stop",
    }
    person.open(f"?{frozen}", "Overview")
    for each in sorted(PAGES, key=lambda page: page.key in asked):
        if each.key in asked:
            person.open(f"{each.key}?{asked[each.key]}", each.name)
        else:
            person.link(each.name).click()
            person.ready(each.name)
        for part in ("document.documentElement", "document.querySelector('.stMain')"):
            person.tab.wait_for_function(f"{part}.scrollWidth <= {NARROW['width']}")
        if each.of_a_range and each.key != "outside":  # probes are not simulated
            assert person.tab.locator(".band").bounding_box()["y"] == 0
            finding, controls = (
                person.tab.locator(place).first.bounding_box()["y"]
                for place in (".headline", ".st-key-controls")
            )
            assert finding < controls, each.key
        wrong |= accessible(person, each.key, *OF_A_LAYOUT)
        person.undisturbed()
    assert not wrong


def test_no_stale_page_is_green(reader: Open, live: LiveFleet) -> None:
    live.stop()
    person = reader()
    person.open("?last=5m", "Overview")
    person.tab.locator(".freshness .stale").wait_for()
    for each in PAGES:
        if each.of_a_range and each.key != "outside":  # no probe has ever reported
            person.link(each.name).click()
            person.ready(each.name)
            assert person.tab.locator(".headline", has_text="No data for").count() == 1
            assert person.green() == []
            person.undisturbed()
