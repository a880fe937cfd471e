"""Stale data does not look healthy: in words, in colour, on each page that follows the clock."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from store.database import open_database
from store.writer import Writer
from tests.ui.opening import Open, markup

Database = Callable[..., str]


@pytest.mark.parametrize(
    "page_key", ["overview", "requests", "root-cause", "fleet", "slos", "cost"]
)
def test_a_page_without_new_data_says_so_first(
    page: Open, database: Database, incident: Any, page_key: str
) -> None:
    """Before anything else, and nothing on it is green."""
    url = database(incident(time.time_ns() - 4_080 * 10**9))
    test = page(url, page=page_key, last="6h")
    assert not test.exception
    said = markup(test)
    assert "<b>No data for 48 min" in said
    assert "class='stale'>stale" in said
    assert "class='live'" not in said
    assert "state fine" not in said
    assert "answer fine" not in said
    headlines = [each for each in said.splitlines() if "headline" in each]
    assert "No data for 48 min" in headlines[0]


def test_a_page_with_new_data_is_live(page: Open, database: Database, incident: Any) -> None:
    """As it was."""
    said = markup(page(database(incident(time.time_ns() - 1_205 * 10**9)), page="overview"))
    assert "No data" not in said
    assert "class='live'>live" in said


def test_a_past_range_is_not_stale(page: Open, database: Database, incident: Any) -> None:
    """Its data is of its time."""
    began = time.time_ns() // 10**9 - 90_000
    url = database(incident(began * 10**9))
    said = markup(page(url, page="overview", **{"from": str(began), "to": str(began + 1_200)}))
    assert "No data" not in said
    assert "class='paused'>paused" in said


def test_old_data_that_arrives_is_no_outage(
    page: Open, database: Database, incident: Any, one_request: Any
) -> None:
    """As after the start of the simulator: the page says how far it is, and nothing is stale."""
    now = time.time_ns()
    url = database(incident(now - 3_000 * 10**9))
    assert "No data for" in markup(page(url))
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit([one_request(9_999, received_unix_ns=now - 600 * 10**9)], []).result()
    engine.dispose()
    said = markup(page(url, page="requests"))  # read anew
    assert "Earlier data is arriving" in said
    assert "No data for" not in said
    assert "stale" not in said
