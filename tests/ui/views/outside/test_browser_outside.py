import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from telemetry.requests import RequestTimeline
from tests.analysis.outside.probed import LENGTH_S, START_S, probes, rows, store

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_the_filter_survives_back_and_reload(
    explorer: Any,
    tab: Any,
    tmp_path: Path,
    request_row: Callable[..., RequestTimeline],
) -> None:
    url = f"sqlite:///{tmp_path}/probed.db"
    results = list(probes())
    store(url, results, rows(request_row, results))
    page = tab(viewport={"width": 400, "height": 900}, color_scheme="dark")
    page.goto(f"{explorer(url)}/outside?from={START_S}&to={START_S + LENGTH_S}")

    def drawn(probes: str, bars: int) -> None:
        page.locator(".headline", has_text=f"{probes} probes").wait_for()
        chart = page.locator(".st-key-chart_outside_phases")
        chart.locator(".ytick", has_text="chat from").nth(bars - 1).wait_for()
        chart.locator(".legend", has_text="transfer").first.wait_for()
        page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
        assert page.locator("[data-testid=stException]").count() == 0

    drawn("480", 2)
    page.get_by_role("combobox", name=re.compile("Region")).click()
    page.get_by_role("option", name="eu-west").click()
    page.wait_for_url(re.compile("region=eu-west"))
    drawn("240", 1)
    page.reload()
    drawn("240", 1)
    page.go_back()
    drawn("480", 2)
    page.go_forward()
    drawn("240", 1)
