import re
from typing import Any

import pytest

from replay.engine_config import EngineConfig
from simulator.dataset import run as simulate
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from tests.ui.conftest import fill

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SECONDS = 90
CONFIG = FleetConfig(
    duration_s=float(SECONDS),
    seed=5,
    replicas=1,
    engine=EngineConfig(max_num_seqs=24),
    workload=Workload(rate_per_s=6.0),
    started_unix_ns=1_763_600_400 * 10**9,
)
START_S = CONFIG.started_unix_ns // 10**9


def test_a_sweep_draws_its_curve_and_its_address_repeats_it(
    explorer: Any, tab: Any, database: Any
) -> None:
    url = database()
    data = simulate(CONFIG)
    fill(url, data.requests, data.samples, data.starts)
    page = tab(viewport={"width": 400, "height": 900}, color_scheme="dark")
    page.goto(f"{explorer(url)}/what-if?from={START_S}&to={START_S + SECONDS}")
    page.locator(".headline", has_text="Choose a change").wait_for()
    page.get_by_role("textbox", name="Sweep").fill("max_num_seqs=3..96")
    page.get_by_role("button", name="Predict").click()

    def drawn() -> None:
        page.locator(".headline", has_text="max_num_seqs").wait_for()
        page.locator(".js-plotly-plot .xtick", has_text="now").wait_for()
        page.locator("td", has_text="24 (now, measured)").wait_for()
        heights = "(rows) => rows.map((row) => row.offsetHeight)"
        assert max(page.locator("table.data tbody tr").evaluate_all(heights)) < 40, "a row wraps"
        assert page.locator("td", has_text="cannot keep up").count() >= 2
        assert page.locator(".js-plotly-plot .legend", has_text="cannot keep up").count() == 1
        page.wait_for_function("document.querySelector('.stMain').scrollWidth <= 400")
        assert page.locator("[data-testid=stException]").count() == 0

    drawn()
    page.wait_for_url(re.compile(r"sweep=max_num_seqs(%3D|=)3\.\.96"))
    page.reload()
    drawn()
    assert page.get_by_role("textbox", name="Sweep").input_value() == "max_num_seqs=3..96"
    page.locator("td a", has_text="48").click()
    page.locator(".headline", has_text="With max_num_seqs=48").wait_for()
    page.locator(".js-plotly-plot .xtick", has_text="P99").first.wait_for()
    page.go_back()
    drawn()
