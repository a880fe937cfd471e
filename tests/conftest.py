"""What tests of several parts share: a browser."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

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
