"""What several viewers look at is read once.

What is kept is found by the stretch of time that it is of, and a live page's stretches end at
multiples of its own cadence: who looks a moment later sees what was read for the first.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st
from sqlalchemy import Engine

from store.queries import Window
from ui.pages import Page
from ui.view import SECOND_NS, View

Found = TypeVar("Found")


def shared(engine: Engine, key: tuple[Hashable, ...], read: Callable[[], Found]) -> Found:
    """What was read for this key by whoever asked first; what fails is asked again.

    Args:
        engine: whose answers these are.
        key: all that the answer depends on.
        read: reads it. What it returns is everybody's: nobody changes it.
    """
    found: Found = _kept((str(engine.url), *key), read)
    return found


@st.cache_resource(ttl=120, max_entries=200, show_spinner=False)
def _kept(key: tuple[Hashable, ...], _read: Callable[[], Any]) -> Any:
    del key  # Streamlit finds what is kept by it
    return _read()


def window_of(view: View, page: Page, now_unix_ns: int) -> Window:
    """The range to show, which for a live page ends at a multiple of its cadence."""
    if view.live and view.last is not None:
        step_ns = page.refresh_s[view.last] * SECOND_NS
        now_unix_ns = now_unix_ns // step_ns * step_ns
    return view.window(now_unix_ns)
