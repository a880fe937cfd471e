import time
from dataclasses import replace
from typing import Any

import pytest

pytestmark = [
    pytest.mark.real,
    # Each test starts a server and a browser.
    pytest.mark.timeout(180),
]

HOSTILE = "<img src=x onerror='document.title=\"owned\"'><script>document.title='owned'</script>"


def recent(length_s: float = 600) -> int:
    return time.time_ns() - int(length_s * 1e9)


def test_requests_are_visible_and_no_other_host_is_called(browse: Any, fleet: Any) -> None:
    address, page = browse(*fleet(3000, recent(), 600))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/?page=requests")
    page.locator("a[data-key]").first.wait_for()
    page.locator(".js-plotly-plot").nth(2).wait_for()
    assert page.locator("a[data-key]").first.inner_text().startswith("chatcmpl-")
    assert page.locator(".stException").count() == 0
    local = (address, address.replace("http", "ws"), "data:", "blob:")
    assert not [url for url in asked if not url.startswith(local)]


def test_a_row_leads_to_its_request_and_back(browse: Any, fleet: Any) -> None:
    address, page = browse(*fleet(3000, recent(700), 600))
    page.goto(f"{address}/requests?last=15m&tenant=acme")
    row = page.locator("a[data-key]").nth(3)
    key, name = row.get_attribute("data-key"), row.inner_text()
    row.click()
    page.locator(".facts").first.wait_for()
    assert f"request={key}" in page.url
    assert name in page.locator(".headline b").first.inner_text()
    page.reload()
    page.locator(".facts").first.wait_for()
    assert name in page.locator(".headline b").first.inner_text()
    page.go_back()
    page.locator("a[data-key]").first.wait_for()
    assert page.url == f"{address}/requests?last=15m&tenant=acme"


def test_back_and_forward_go_through_the_views(browse: Any, fleet: Any) -> None:
    address, page = browse(*fleet(1000, recent(700), 600))

    def shows(title: str, length: str) -> None:
        page.wait_for_url(f"**last={length}*")
        page.get_by_role("heading", name=title, exact=True).wait_for()
        page.locator("[aria-checked=true]", has_text=length).wait_for()
        page.locator("[data-test-script-state=notRunning]").wait_for()

    page.goto(f"{address}/?page=requests&last=15m")
    shows("Requests", "15m")
    page.get_by_role("radio", name="1h", exact=True).click()
    shows("Requests", "1h")
    page.get_by_role("link", name="Fleet").click()
    shows("Fleet", "1h")
    entries = page.evaluate("history.length")
    page.go_back()
    shows("Requests", "1h")
    page.go_back()
    shows("Requests", "15m")
    page.go_forward()
    shows("Requests", "1h")
    page.go_forward()
    shows("Fleet", "1h")
    page.reload()
    shows("Fleet", "1h")
    # Faster than the server answers.
    for _ in range(2):
        page.go_back(wait_until="commit")
    shows("Requests", "15m")
    for _ in range(2):
        page.go_forward(wait_until="commit")
    shows("Fleet", "1h")
    page.wait_for_timeout(1_000)
    assert page.evaluate("history.length") == entries
    page.go_back()
    shows("Requests", "1h")


@pytest.mark.parametrize("query", ["page=why&incident=unknown@1", "page=why&last=1h"])
def test_one_step_back_leads_out_of_a_link(browse: Any, fleet: Any, query: str) -> None:
    address, page = browse(*fleet(1000, recent(700), 600))
    page.goto(f"{address}/requests?last=15m")
    page.locator("a[data-key]").first.wait_for()
    page.goto(f"{address}/?{query}")
    page.get_by_role("heading", name="Root cause", exact=True).wait_for()
    page.locator(".headline").first.wait_for()
    page.locator("[data-test-script-state=notRunning]").wait_for()
    assert page.url.startswith(f"{address}/root-cause?")
    page.go_back()
    page.get_by_role("heading", name="Requests", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(browse: Any, fleet: Any, scheme: str) -> None:
    address, page = browse(
        *fleet(1000, recent(), 600, simulated=True), width=400, height=800, color_scheme=scheme
    )
    page.goto(f"{address}/?page=requests")
    page.locator("a[data-key]").first.wait_for()
    page.locator("a[data-key]").last.scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 400
    assert page.locator(".band").bounding_box()["y"] == 0


def test_hostile_labels_do_not_run(browse: Any, one_request: Any) -> None:
    names = ("request_id", "tenant", "replica", "model", "route", "config")
    request = one_request(
        1, received_unix_ns=recent(60), **dict.fromkeys(names, HOSTILE), error_type=HOSTILE
    )
    address, page = browse([request])
    page.goto(f"{address}/?page=requests")
    row = page.locator("a[data-key]").first
    assert "<img src=x" in row.inner_text()
    row.click()
    page.locator(".facts").first.wait_for()
    assert "<img src=x" in page.locator(".headline").first.inner_text()
    assert page.title().endswith(" · Tailspan")
    assert page.locator("img[src=x]").count() == 0


def test_the_causes_of_an_incident_open_from_a_link(browse: Any, incident: Any) -> None:
    start_s = int(time.time()) - 2_000
    rows = incident(start_s * 10**9, tenant=HOSTILE, route=HOSTILE)
    address, page = browse(rows, width=400, height=800)
    link = f"{address}/?page=root-cause&from={start_s + 600}&to={start_s + 1200}&latency=e2e"
    page.goto(link)
    page.locator(".cause", has_text="the KV cache is full").wait_for()
    page.locator(".js-plotly-plot").first.wait_for()
    assert page.locator(".stException").count() == 0
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 400
    assert page.title().endswith(" · Tailspan")
    assert page.locator("img[src=x]").count() == 0
    said = page.locator(".headline").inner_text()
    asked = page.url.partition("?")[2]
    page.get_by_role("link", name="Requests", exact=True).click()
    page.get_by_role("heading", name="Requests", exact=True).wait_for()
    page.locator("a[data-key]").first.wait_for()
    page.get_by_role("link", name="Root cause", exact=True).click()
    page.locator(".cause").wait_for()
    page.wait_for_url(f"{address}/root-cause?{asked}")
    assert page.locator(".headline").inner_text() == said


def test_a_stretch_that_is_dragged_over_is_asked_about(browse: Any, incident: Any) -> None:
    start_s = int(time.time()) - 2_000
    address, page = browse(incident(start_s * 10**9), height=1400)
    page.goto(f"{address}/?page=root-cause&from={start_s + 600}&to={start_s + 1200}")
    page.locator(".cause", has_text="the KV cache is full").wait_for()
    before = page.locator(".note").first.inner_text()
    verdict = page.locator(".headline").first.inner_text()
    area = page.locator("[class*='st-key-chart_shape'] .nsewdrag").first.bounding_box()
    assert area is not None
    height = area["y"] + area["height"] / 2
    page.mouse.move(area["x"] + area["width"] * 0.55, height)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.95, height + 20, steps=10)
    page.mouse.up()
    page.get_by_role("button", name="Explain it").click()
    page.wait_for_url("**baseline=*")
    page.wait_for_function(f"document.querySelector('.note').innerText != {before!r}")
    asked = dict(part.split("=") for part in page.url.partition("?")[2].split("&"))
    assert start_s + 630 < int(asked["from"]) < start_s + 690
    assert start_s + 1110 < int(asked["to"]) < start_s + 1170
    settled = '[data-testid="stApp"][data-test-script-state="notRunning"]'
    page.wait_for_selector(settled)
    assert page.locator(".headline").first.inner_text() != verdict
    assert page.locator(".cause", has_text="the KV cache is full").count() == 1
    assert page.locator(".stException").count() == 0


def test_request_and_fleet_fit_a_narrow_page(browse: Any, fleet: Any, one_request: Any) -> None:
    rows, samples = fleet(1000, recent(), 600)
    hostile = [
        one_request(
            2000 + number,
            received_unix_ns=recent(100),
            **dict.fromkeys(("request_id", "tenant", "replica", "model", "route"), HOSTILE),
            prefill_others_prefill_s=0.05,
        )
        for number in range(2)
    ]
    address, page = browse(
        [*rows, *hostile], [*samples, replace(samples[-1], replica=HOSTILE)], width=400, height=800
    )

    def settled() -> None:
        page.locator(".js-plotly-plot").first.wait_for()
        assert page.locator(".stException").count() == 0
        assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 400
        assert page.title().endswith(" · Tailspan")
        assert page.locator("img[src=x]").count() == 0

    page.goto(f"{address}/?page=fleet&last=15m")
    link = page.locator("td a", has_text="<img").first
    link.wait_for()
    settled()
    link.click()
    page.locator("a[data-key]").first.click()
    page.locator("a", has_text="<img src=x").first.wait_for()
    settled()
    page.wait_for_url("**/request?**")
    page.goto(f"{address}/?page=root-cause&last=15m")
    page.locator("a[data-key]").first.click()
    page.wait_for_url("**/request?**")
    page.get_by_role("heading", name="Time by phase").wait_for()
    settled()
