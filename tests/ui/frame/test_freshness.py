import re
import time
from typing import Any

from tests.ui.conftest import fill
from tests.ui.opening import Database, Open, markup


def test_stale_data_is_shown(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(time.time_ns() - 4_080 * 10**9))
    for key in ("overview", "requests", "root-cause", "fleet", "slos", "cost"):
        shown = markup(page(url, page=key, last="6h"))
        assert "class='stale'>stale" in shown, key
        for current in ("class='live'", "state fine", "answer fine", "class='budget some'"):
            assert current not in shown, key
        headline = next(each for each in shown.splitlines() if "headline" in each)
        assert re.search("<b>No data for (48|49|5.) min", headline), key


def test_a_page_with_new_data_is_live(page: Open, database: Database, incident: Any) -> None:
    shown = markup(page(database(incident(time.time_ns() - 1_205 * 10**9)), page="overview"))
    assert "No data" not in shown
    assert re.search("class='live' data-drawn='[0-9]+' data-every='10'>live", shown)


def test_a_past_range_is_not_stale(page: Open, database: Database, incident: Any) -> None:
    began = time.time_ns() // 10**9 - 90_000
    url = database(incident(began * 10**9))
    shown = markup(page(url, page="overview", **{"from": str(began), "to": str(began + 1_200)}))
    assert "No data" not in shown
    assert "class='paused'>paused" in shown
    assert re.search("data as of [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} ", shown)


def test_old_data_that_arrives_is_no_outage(
    page: Open, database: Database, incident: Any, one_request: Any
) -> None:
    """The simulator sends past data after its start."""
    now = time.time_ns()
    url = database(incident(now - 3_000 * 10**9))
    assert "No data for" in markup(page(url))
    fill(url, [one_request(9_999, received_unix_ns=now - 600 * 10**9)], [])
    shown = markup(page(url, page="requests"))
    assert "Earlier data is arriving" in shown
    assert "No data for" not in shown
    assert "stale" not in shown
