"""The frame that all pages share: title, way from page to page, controls, what goes wrong."""

import html
import time
from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st
from sqlalchemy import Engine

from store.database import default_url
from store.errors import DatabaseMissing, StoreError
from store.queries import Window
from ui.frame import controls, incident_links, no_data
from ui.frame.objectives import in_force
from ui.frame.pages import BY_KEY, WATCHED_S, Page
from ui.frame.read_cache import opened, shared
from ui.frame.view import SECOND_NS, View
from ui.kit import store_reads
from ui.kit.store_reads import Unreadable
from ui.sign_in import gate
from ui.views.root_cause import page as root_cause

Body = Callable[[Engine, tzinfo], None]
"""All of a page that moves with time; it is run again by itself while the page is live."""


def body_of(page: Page) -> Body:
    """Return what a page shows: `body` of the module `page` in its folder."""
    found: Body = import_module(f"ui.views.{page.key.replace('-', '_')}.page").body
    return found


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
    if not gate.passes():
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
        no_data.unreadable(str(error))
        st.fragment(_try_again, run_every=WATCHED_S["1h"])()
        return
    controls.write_address(view)
    moves = page.of_a_range and view.live
    every = page.refresh_s[view.last] if moves and view.last else None
    st.fragment(gate.kept(body_of(page)), run_every=every)(engine, zone)
    gate.way_out()


def _open_incident(engine: Engine, view: View, now_unix_ns: int) -> None:
    """Show the incident that the address names."""
    with st.spinner("Comparing …"), store_reads.told():
        found = incident_links.find(engine, view, in_force().objectives, now_unix_ns)
        shown = found.view
        if found.row is not None and shown.page == "root-cause":
            shown = root_cause.by_verdict(engine, shown, found.row, now_unix_ns)
    controls.open_incident(shown)
    if found.notice is not None:
        st.session_state["notices"] = [found.notice]
    st.rerun()


def _values(engine: Engine, window: Window, label: str) -> list[str]:
    """A label's values, of a range that ends at a whole minute: they change rarely."""
    length_ns = window.to_unix_ns - window.from_unix_ns
    end_ns = -(-window.to_unix_ns // MINUTE_NS) * MINUTE_NS
    whole = Window(max(0, end_ns - length_ns - MINUTE_NS), end_ns)
    return shared(
        engine, ("values", label, whole), lambda: store_reads.values(engine, whole, label)
    )


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
        no_data.no_server()
    except StoreError as error:
        no_data.unreadable(str(error))
    else:
        st.rerun()


def _try_again() -> None:
    # Runs with the page first, and only later by the clock: at once would be for ever.
    if time.time_ns() - st.session_state["now_unix_ns"] > SECOND_NS:
        st.rerun()
