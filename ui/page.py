"""The frame that all pages share: title, way from page to page, controls, what goes wrong."""

import html
import time
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st
from sqlalchemy import Engine

from store.database import default_url
from store.errors import DatabaseMissing, StoreError
from store.queries import Window
from ui import (
    controls,
    cost_page,
    emptiness,
    fleet_page,
    hurt_page,
    incident_address,
    promises_page,
    reading,
    request_page,
    requests_page,
    sign_in,
    why_page,
)
from ui.in_force import in_force
from ui.pages import BY_KEY, WATCHED_S
from ui.reading import Unreadable
from ui.sharing import opened, shared
from ui.view import SECOND_NS, View

Body = Callable[[Engine, tzinfo], None]
"""All of a page that moves with time; it is run again by itself while the page is live."""

BODIES: Final[Mapping[str, Body]] = {
    "hurt": hurt_page.body,
    "requests": requests_page.body,
    "why": why_page.body,
    "fleet": fleet_page.body,
    "request": request_page.body,
    "cost": cost_page.body,
    "promises": promises_page.body,
}

MINUTE_NS: Final = 60 * SECOND_NS

HERE: Final = Path(__file__).parent


def show() -> None:
    """The whole page."""
    st.set_page_config(page_title="Tailspan", page_icon=str(HERE / "icon.svg"), layout="wide")
    st.html(f"<style>{(HERE / 'style.css').read_text()}</style>")
    st.html(
        f"<i class='unseen'></i><script>{(HERE / 'picture_button.js').read_text()}</script>",
        unsafe_allow_javascript=True,
    )
    if not sign_in.passes():
        return
    controls.follow_address()
    view = controls.current()
    page = BY_KEY[view.page]
    controls.navigation(page)
    st.title(page.question, anchor=False)
    for notice in st.session_state["notices"]:
        st.html(f"<p class='notice'>{html.escape(notice)}</p>")
    zone = _zone()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    try:
        engine = opened(default_url())
        if view.names_incident:
            _open_incident(engine, view, now)
        if page.of_a_range:
            controls.bar(page, view, now, zone, partial(_values, engine, view.window(now)))
    except DatabaseMissing:
        st.fragment(_waiting_for_database, run_every=WATCHED_S["15m"])()
        return
    except (Unreadable, StoreError) as error:
        emptiness.unreadable(str(error))
        st.fragment(_try_again, run_every=WATCHED_S["1h"])()
        return
    controls.write_address(view)
    moves = page.of_a_range and view.live
    every = page.refresh_s[view.last] if moves and view.last else None
    st.fragment(sign_in.kept(BODIES[page.key]), run_every=every)(engine, zone)
    sign_in.way_out()


def _open_incident(engine: Engine, view: View, now_unix_ns: int) -> None:
    """Show the incident that the address names."""
    with st.spinner("Comparing …"), reading.told():
        found = incident_address.find(engine, view, in_force().objectives, now_unix_ns)
        shown = found.view
        if found.row is not None and shown.page == "why":
            shown = why_page.by_verdict(engine, shown, found.row, now_unix_ns)
    controls.open_incident(shown)
    if found.notice is not None:
        st.session_state["notices"] = [found.notice]
    st.rerun()


def _values(engine: Engine, window: Window, label: str) -> list[str]:
    """A label's values, of a range that ends at a whole minute: they change rarely."""
    length_ns = window.to_unix_ns - window.from_unix_ns
    end_ns = -(-window.to_unix_ns // MINUTE_NS) * MINUTE_NS
    whole = Window(max(0, end_ns - length_ns - MINUTE_NS), end_ns)
    return shared(engine, ("values", label, whole), lambda: reading.values(engine, whole, label))


def _zone() -> tzinfo:
    """The reader's time zone, as the browser tells it."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def _waiting_for_database() -> None:
    try:
        opened(default_url())
    except DatabaseMissing:
        emptiness.no_server()
    except StoreError as error:
        emptiness.unreadable(str(error))
    else:
        st.rerun()


def _try_again() -> None:
    # Runs with the page first, and only later by the clock: at once would be for ever.
    if time.time_ns() - st.session_state["now_unix_ns"] > SECOND_NS:
        st.rerun()
