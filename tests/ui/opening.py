"""Functions that read the explorer's pages in Streamlit's test runner, without a browser."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from ui.frame.pages import FIRST

APP = Path(__file__).parents[2] / "ui" / "app.py"

Open = Callable[..., AppTest]
"""Opens a page. The arguments are the database's URL and the address's parameters."""

Database = Callable[..., str]
"""Stores rows and returns the database's URL."""

HOSTILE = "<script>alert(1)</script>**b** [x](javascript:y) :red[z] $q$ \u202e" + "w" * 10_000


@pytest.fixture(scope="session", autouse=True)
def packages_are_scanned_once() -> Iterator[None]:
    """Let Streamlit search the installed packages for components once, instead of in each
    `AppTest`."""
    scan = functools.cache(manifest_scanner.scan_component_manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield


def markup(test: AppTest) -> str:
    """Return all HTML of the page. Fail if the page has an exception."""
    assert not test.exception
    return "\n".join(element.proto.body for element in test.get("html"))


def navigation(test: AppTest) -> dict[str, dict[str, str]]:
    """Return the query of each navigation link, by the page's key."""
    links = [element.proto for element in test.get("page_link")]
    return {each.page or FIRST: dict(parse_qsl(each.query_string)) for each in links}


def address(test: AppTest) -> dict[str, str]:
    """Return the query of the page's address, including the page."""
    single = {
        name: each[0] if isinstance(each, list) else each
        for name, each in test.query_params.items()
    }
    return {"page": test.session_state["view"].page, **single}
