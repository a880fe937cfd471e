"""What several viewers look at is read once.

What is kept is found by the stretch of time that it is of, and a live page's stretches end at
multiples of its own cadence: who looks a moment later sees what was read for the first.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import streamlit as st
from sqlalchemy import Engine

from diagnosis.inputs.arrow import REQUEST_COLUMNS
from store.columns.evidence import KeptEvidence
from store.database import open_database
from store.queries import Window
from ui.frame.pages import Page
from ui.frame.view import SECOND_NS, View

KEPT_S: Final = 900
"""At least as long as the slowest page waits before it looks again."""
KEPT: Final = 200
KEPT_LARGE: Final = 4
"""Of what holds single requests: a million of them take some 300 MB."""

Found = TypeVar("Found")


def shared(
    engine: Engine, key: tuple[Hashable, ...], read: Callable[[], Found], *, large: bool = False
) -> Found:
    """What was read for this key by whoever asked first; what fails is asked again.

    Args:
        engine: whose answers these are.
        key: all that the answer depends on.
        read: reads it. What it returns is everybody's: nobody changes it.
        large: whether it holds requests one by one.
    """
    kept = _large if large else _small
    found: Found = kept((str(engine.url), *key), read)
    return found


@st.cache_resource(ttl=KEPT_S, max_entries=KEPT, show_spinner=False)
def _small(key: tuple[Hashable, ...], _read: Callable[[], Any]) -> Any:
    del key  # Streamlit finds what is kept by it
    return _read()


@st.cache_resource(ttl=KEPT_S, max_entries=KEPT_LARGE, show_spinner=False)
def _large(key: tuple[Hashable, ...], _read: Callable[[], Any]) -> Any:
    del key
    return _read()


@st.cache_resource(show_spinner=False)
def opened(url: str) -> Engine:
    """The database, for all who look; raises as `open_database` does."""
    return open_database(url, create=False)


def kept_evidence(engine: Engine) -> KeptEvidence:
    """What explanations rest on, of one database, read once for all ranges and viewers."""
    found: KeptEvidence = _evidence(str(engine.url), engine)
    return found


@st.cache_resource(show_spinner=False)
def _evidence(url: str, _engine: Engine) -> KeptEvidence:
    del url  # Streamlit finds what is kept by it
    return KeptEvidence(_engine, REQUEST_COLUMNS)


def window_of(view: View, page: Page, now_unix_ns: int) -> Window:
    """The range to show, which for a live page ends at a multiple of its cadence."""
    if view.live and view.last is not None:
        step_ns = page.refresh_s[view.last] * SECOND_NS
        now_unix_ns = now_unix_ns // step_ns * step_ns
    return view.window(now_unix_ns)
