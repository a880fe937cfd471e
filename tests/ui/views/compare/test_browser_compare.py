import re
from typing import Any

import pytest

from tests.analysis.compare.two_windows import SECONDS, START_S, store, store_canary

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_the_address_is_the_question(explorer: Any, tab: Any, database: Any) -> None:
    url = database()
    store(url)
    page = tab(viewport={"width": 400, "height": 900}, color_scheme="dark")
    after = f"from={START_S + 600}&to={START_S + 600 + SECONDS}"
    page.goto(
        f"{explorer(url)}/compare?{after}&baseline={START_S}/{START_S + SECONDS}&latency=tpot"
    )

    def drawn(percentile: str) -> None:
        page.locator(".headline", has_text=f"TPOT {percentile} is").wait_for()
        page.locator(".js-plotly-plot .ytick", has_text="change").first.wait_for()
        page.locator(".js-plotly-plot .legend", has_text="same mix and load").first.wait_for()
        page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
        assert page.locator("[data-testid=stException]").count() == 0

    drawn("P95")
    page.get_by_role("radio", name="P50").click()
    page.wait_for_url(re.compile("quantile=p50"))
    drawn("P50")
    page.reload()
    drawn("P50")
    page.go_back()
    drawn("P95")
    page.go_forward()
    drawn("P50")


def test_a_canary_is_chosen_and_survives_reload_and_back(
    explorer: Any, tab: Any, database: Any
) -> None:
    url = database()
    store_canary(url)
    page = tab(viewport={"width": 400, "height": 900}, color_scheme="dark")
    page.goto(
        f"{explorer(url)}/compare?from={START_S}&to={START_S + SECONDS}&latency=tpot&quantile=p50"
    )
    page.locator(".headline", has_text="Undecided: 0 requests before").wait_for()

    def drawn() -> None:
        page.locator(".headline", has_text=re.compile(r"TPOT P50 is \d+ % worse")).wait_for()
        page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
        assert page.locator("[data-testid=stException]").count() == 0

    page.get_by_role("combobox", name=re.compile("Compared with")).click()
    page.get_by_role("option", name="vs. another replica").click()
    page.wait_for_url(re.compile("split=replica&before=sim-0&after=sim-1"))
    drawn()
    page.reload()
    drawn()
    page.go_back()
    page.locator(".headline", has_text="Undecided: 0 requests before").wait_for()
    page.go_forward()
    drawn()
