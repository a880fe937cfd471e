import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.over_time import rolled
from store.database import open_database
from store.rollups.bucket_builder import build_marked
from tests.ui.opening import Database, Open, markup


@pytest.fixture
def page(page: Open) -> Open:
    return partial(page, page="requests")


def recent() -> int:
    return time.time_ns() - 620 * 10**9


def test_a_chosen_budget_shows_the_layer_that_overspends(
    page: Open, database: Database, fleet: Any
) -> None:
    test = page(database(*fleet(600, recent(), 600)))
    assert "overspends most" not in markup(test)
    test.segmented_control("budget").set_value("chat").run()
    assert not test.exception
    shown = markup(test)
    assert "Queue overspends most" in shown
    assert "the budget without the unknown layers is 300 ms" in shown
    assert "before the model" in shown
    assert "tailspan what-if --from" in shown
    assert test.query_params["budget"] == "chat"


def test_the_readers_file_is_read(
    page: Open,
    database: Database,
    fleet: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = database(*fleet(500, recent(), 600))
    assert "your file" not in page(url).segmented_control("budget").options
    assert "Set TAILSPAN_BUDGET" in markup(page(url, budget="file"))
    file = tmp_path / "budget.yaml"
    monkeypatch.setenv("TAILSPAN_BUDGET", str(file))
    file.write_text("latency: e2e\ntotal: 1h\nlayers: {queue: <b>}\n")
    shown = markup(page(url, budget="file"))
    assert "layers.queue: &#x27;&lt;b&gt;&#x27;; allowed: a duration" in shown
    file.write_text("latency: e2e\ntotal: 1h\nsource: <script>\n")
    shown = markup(page(url, budget="file"))
    assert "It is met: 100.0 %" in shown
    assert "your file" in page(url).segmented_control("budget").options
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown


def test_too_few_or_too_many_requests_are_said(
    page: Open, database: Database, fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database(*fleet(60, recent(), 600))
    assert "P95 needs at least 281" in markup(page(url, budget="code"))
    engine = open_database(url)
    build_marked(engine, time.time_ns() // 10**9 + 7_200)
    engine.dispose()
    monkeypatch.setattr(rolled, "MAX_READ", 10)
    assert "too many requests to divide the time" in markup(page(url, budget="code", last="1h"))


def test_an_unknown_budget_in_the_address_is_a_notice(
    page: Open, database: Database, fleet: Any
) -> None:
    test = page(database(*fleet(60, recent(), 600)), budget="email")
    assert "none, voice, chat, code, file" in markup(test)
