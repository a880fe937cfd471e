"""What tests of several parts share: a browser, a PostgreSQL, a request."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rig.install import NotHereError
from rig.postgresql import PostgreSQL
from telemetry.requests import Basis, Outcome, RequestTimeline, Source

# How long an example takes says more of the machine than of the code.
settings.register_profile("tailspan", deadline=None)
settings.load_profile("tailspan")

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 60_000

START_NS = 1_763_634_000_000_000_000
"""When the first of some requests was received."""


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a tab of a fresh profile."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        contexts: list[Any] = []

        def open_tab(**options: Any) -> Any:
            context = playwright.chromium.launch_persistent_context(
                str(tmp_path / f"profile-{len(contexts)}"),
                executable_path=chromium,
                args=list(FLAGS),
                **options,
            )
            context.set_default_timeout(PATIENCE_MS)
            contexts.append(context)
            return context.pages[0]

        yield open_tab
        for context in contexts:
            context.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A running PostgreSQL; who stops it starts it again."""
    try:
        server = PostgreSQL()
    except NotHereError as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture
def request_row() -> Callable[..., RequestTimeline]:
    """A request by its number, one a second; with what the test is about."""

    def make(number: int = 0, **about: Any) -> RequestTimeline:
        plain: dict[str, Any] = {
            "trace_id": f"{number:032x}",
            "span_id": f"{number:016x}",
            "request_id": f"chatcmpl-{number}",
            "received_unix_ns": START_NS + number * 1_000_000_000,
            "e2e_s": 1.5,
            "outcome": Outcome.STOP,
            "source": Source.INSTRUMENTATION,
            "basis": Basis.HTTP,
        }
        return RequestTimeline(**{**plain, **about})

    return make
