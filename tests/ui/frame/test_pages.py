import time
from pathlib import Path
from typing import Any

import pytest

from store.database import open_database
from tests.ui.opening import Database, Open, markup
from ui.frame.app import module_of
from ui.frame.pages import BY_KEY, FIRST, PAGES, ExplorerPage
from ui.frame.view import RANGES_S


def test_every_page_has_a_body_and_a_unique_name() -> None:
    assert all(callable(getattr(module_of(page), "show", None)) for page in PAGES)
    for attribute in ("key", "name"):
        assert len({getattr(page, attribute) for page in PAGES}) == len(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.key)
def test_every_page_has_refresh_intervals(page: ExplorerPage) -> None:
    assert list(page.refresh_s) == list(RANGES_S)
    assert list(page.refresh_s.values()) == sorted(page.refresh_s.values())


@pytest.mark.parametrize("key", BY_KEY)
def test_an_empty_store_helps(page: Open, database: Database, tmp_path: Path, key: str) -> None:
    for url in (database(), f"sqlite:///{tmp_path / 'none.db'}"):
        opened = page(url, page=key)
        if key not in ("request", "slos", "outside"):
            assert "pip install ./instrumentation" in opened.code[0].value


def test_the_instructions_contain_the_collectors_addresses(
    page: Open, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database()
    assert "http://HOST:4317" in page(url, page="overview").code[0].value
    assert "http://HOST:4318" in page(url, page="outside").code[0].value
    monkeypatch.setenv("TAILSPAN_GRPC_PORT", "14317")
    monkeypatch.setenv("TAILSPAN_HTTP_PORT", "14318")
    overview = page(url, page="overview").code[0].value
    assert "http://HOST:14317" in overview
    assert "tailspan-vllm" not in overview  # it is not on PyPI
    assert "http://HOST:14318" in page(url, page="outside").code[0].value
    monkeypatch.setenv("TAILSPAN_OTLP_SCHEME", "https")
    assert "https://HOST:14317" in page(url, page="overview").code[0].value


@pytest.mark.parametrize("key", BY_KEY)
def test_a_single_request_is_enough(
    page: Open, database: Database, one_request: Any, key: str
) -> None:
    row = one_request(1, received_unix_ns=time.time_ns() - 60 * 10**9)
    asked = {"request": f"{row.trace_id}/{row.span_id}"} if key == "request" else {}
    assert "headline" in markup(page(database([row]), page=key, last="15m", **asked))


@pytest.mark.parametrize("key", ["overview", "requests", "root-cause", "compare"])
def test_an_empty_range_is_fixed(page: Open, database: Database, incident: Any, key: str) -> None:
    test = page(database(incident(1_763_600_000 * 10**9)), page=key, last="5m")
    assert "No requests between" in markup(test)
    test.button("show_range").click().run()
    assert "No requests between" not in markup(test)
    assert {"from", "to"} <= set(test.query_params)
    assert "last" not in test.query_params


@pytest.mark.parametrize("key", [key for key in BY_KEY if key != "request"])
def test_a_failing_store_is_reported(page: Open, database: Database, fleet: Any, key: str) -> None:
    url = database(*fleet(100, time.time_ns() - 80 * 10**9, 60))
    test = page(url, page=key, last="15m")
    engine = open_database(url)
    with engine.begin() as connection:
        for table in ("requests", "engine_samples", "probes"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
    engine.dispose()
    test.segmented_control("range").set_value("1h").run()
    assert "cannot be read" in markup(test)


def test_an_unknown_page_lists_the_known_ones(page: Open, tmp_path: Path) -> None:
    test = page(f"sqlite:///{tmp_path / 'none.db'}", page="<b>wy</b>")
    assert test.title[0].value == BY_KEY[FIRST].name
    shown = markup(test)
    assert "page is “&lt;b&gt;wy&lt;/b&gt;”; allowed:" in shown
    assert all(key in shown for key in BY_KEY)
