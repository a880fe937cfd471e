"""Tests that a page shows only the progress while a simulated past arrives."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from alerts.evaluation.evaluator import Evaluator
from alerts.openslo.reader import OBJECTIVES, load
from analysis.first_minute import ENVIRONMENT_KEY
from store.database import open_database
from tests.ui.opening import Open, markup

Database = Callable[..., str]


def test_progress_is_shown_instead_of_an_incomplete_page(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time_ns() // 10**9
    url = database(incident((now_s - 2_400) * 10**9))  # the last request is 20 minutes old
    monkeypatch.setenv(ENVIRONMENT_KEY, f"{now_s - 2_400}/{now_s}")
    for key in ("overview", "root-cause", "requests", "cost"):
        shown = markup(page(url, page=key))
        assert "The simulated fleet is starting." in shown, key
        assert "Simulated data" in shown, key
        for early in ("No requests", "No data", "burning"):
            assert early not in shown, key


def test_the_page_follows_when_the_past_is_evaluated(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time_ns() // 10**9
    url = database(incident((now_s - 1_200) * 10**9))
    monkeypatch.setenv(ENVIRONMENT_KEY, f"{now_s - 1_200}/{now_s}")
    test = page(url)
    assert "The simulated fleet is starting." in markup(test)
    engine = open_database(url)
    Evaluator(engine, load([OBJECTIVES]).objectives).evaluate(now_s)
    engine.dispose()
    shown = markup(test.run())
    assert "The simulated fleet is starting." not in shown
    assert "SLO “chat”" in shown
