"""Draw the frame around every page: navigation, controls, refreshing, errors."""

import html
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st
from sqlalchemy import Engine

from analysis.label_values import label_values
from analysis.over_time.time_bins import SECOND_NS
from telemetry.database_urls import default_url
from telemetry.store_errors import DatabaseMissing, NotAllowed, StoreError
from telemetry.window import Window
from ui.frame import (
    command,
    controls,
    first_minute,
    freshness,
    incident_links,
    navigation,
    no_data,
    selection,
)
from ui.frame.context import CannotShow, Context
from ui.frame.objectives import Objectives, for_reader, read_objectives
from ui.frame.pages import BY_KEY, ExplorerPage
from ui.frame.read_cache import opened, shared
from ui.frame.reader import readers_engine
from ui.frame.view import View
from ui.kit import picture, wording
from ui.kit.sections import CAPTION, paragraph
from ui.kit.unreadable import Unreadable, store_errors
from ui.sign_in import gate

MINUTE_NS: Final = 60 * SECOND_NS
RETRY_S: Final = 5
FIRST_MINUTE_S: Final = 1
NOT_ALLOWED: Final = "Your role does not allow this page"
FOLDER: Final = Path(__file__).parent
FRAMED: Final = "framed"
"""Session key of the view whose controls were drawn."""
DRAWN: Final = "drawn"
"""Session key of the view whose data was drawn."""


def show() -> None:
    """Draw the whole page."""
    st.set_page_config(page_icon=str(FOLDER / "icon.svg"), layout="wide")
    if gate.passes():
        navigation.choose(_page)


def module_of(page: ExplorerPage) -> Any:
    """The `PageModule` of a page."""
    return import_module(f"ui.views.{page.key.replace('-', '_')}.page")


def _page() -> None:
    zone = _zone()
    now = time.time_ns()
    st.session_state["now_unix_ns"] = now
    try:
        engine = readers_engine(opened(default_url()))
        if navigation.current().names_incident:
            _resolve_incident(engine, now, zone)
        view = navigation.current()
        page = BY_KEY[view.page]
        _title(page)
        if page.of_a_range:
            controls.bar(page, view, now, zone, partial(_values, engine, view.window(now)))
    except NotAllowed as error:
        _title(BY_KEY[navigation.current().page])
        no_data.cannot_show(NOT_ALLOWED, str(error))
        gate.sign_out_button()
        return
    except DatabaseMissing:
        _title(BY_KEY[navigation.current().page])
        st.fragment(_wait_for_database, run_every=RETRY_S)()
        return
    except (Unreadable, StoreError) as error:
        _title(BY_KEY[navigation.current().page])
        no_data.unreadable(str(error))
        st.fragment(_try_again, run_every=RETRY_S)()
        return
    st.session_state[FRAMED] = view
    if page.of_a_range and view.live and first_minute.current(engine, _objectives(engine), now):
        st.fragment(gate.kept(_first_minute), run_every=FIRST_MINUTE_S)(engine, zone)
        gate.sign_out_button()
        return
    every = page.refresh_s[view.last] if page.of_a_range and view.live and view.last else None
    st.fragment(gate.kept(_body), run_every=every)(engine, zone)
    gate.sign_out_button()


def _first_minute(engine: Engine, _zone: tzinfo) -> None:
    found = first_minute.current(engine, _objectives(engine), time.time_ns())
    if found is None:
        st.rerun()
    first_minute.show(found)


def _title(page: ExplorerPage) -> None:
    st.set_page_config(page_title=f"{page.name} · Tailspan")
    st.title(page.name, anchor=False)
    for notice in navigation.notices():
        paragraph(html.escape(notice), "notice")


def _body(engine: Engine, zone: tzinfo) -> None:
    view = navigation.current()
    if view != st.session_state[FRAMED]:
        st.rerun()  # redraw navigation and controls
    context = _context(engine, view, time.time_ns(), zone)
    st.session_state["now_unix_ns"] = context.now_unix_ns
    module = module_of(context.page)
    try:
        # The spinner moves the page for a moment, so show it only for a new view.
        with nullcontext() if st.session_state.get(DRAWN) == view else st.spinner("Reading …"):
            found = module.read(context)
        st.session_state[DRAWN] = view
        st.session_state[CAPTION] = picture.caption(
            view.equals, context.window, zone, simulated=found.simulated
        )
        if context.page.of_a_range:
            freshness.show(context, found.newest_unix_ns, found.simulated)
        if found.newest_unix_ns is None and context.page.needs_data:
            no_data.no_server()
        else:
            module.show(context, found)
            _drag(context, found, module)
            _command(context)
    except CannotShow as error:
        no_data.cannot_show(error.sentence, error.reason)
    except NotAllowed as error:
        no_data.cannot_show(NOT_ALLOWED, str(error))
    except (Unreadable, StoreError) as error:
        no_data.unreadable(str(error))


def _drag(context: Context, found: Any, module: Any) -> None:
    window = selection.chosen(context)
    if window is not None:
        explaining: Callable[..., View] | None = getattr(module, "explaining", None)
        selection.offer(context, window, explaining(context, found, window) if explaining else None)


def _command(context: Context) -> None:
    line = command.command(context.view, context.window, context.now_unix_ns)
    if line is not None:
        window = context.window
        zone = html.escape(wording.zone_name(context.zone, window.from_unix_ns, window.to_unix_ns))
        paragraph(f"In a terminal, with times in UTC. This page shows {zone}.")
        st.code(line, language="bash", wrap_lines=True)


def _context(engine: Engine, view: View, now_unix_ns: int, zone: tzinfo) -> Context:
    return Context(engine, BY_KEY[view.page], view, now_unix_ns, zone, _objectives(engine))


def _objectives(engine: Engine) -> Objectives:
    return for_reader(engine, read_objectives())


def _resolve_incident(engine: Engine, now_unix_ns: int, zone: tzinfo) -> None:
    """Draw the page again with the incident in the address.

    The address does not change. A changed address would require the reader to press Back twice.
    """
    context = _context(engine, navigation.current(), now_unix_ns, zone)
    with st.spinner("Reading …"), store_errors():
        found = incident_links.find(engine, context.view, context.objectives.visible, now_unix_ns)
        page = BY_KEY[found.view.page]
        shown = replace(context, page=page, view=found.view)
        choose: Callable[..., View] | None = getattr(module_of(page), "for_incident", None)
        view = choose(shown, found.row) if choose and found.row else found.view
    if found.notice is not None:
        navigation.warn(found.notice)
    navigation.resolve(view)


def _values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a label in a range. Whole minutes are read, so that views share cache keys."""
    length_ns = window.to_unix_ns - window.from_unix_ns
    end_ns = -(-window.to_unix_ns // MINUTE_NS) * MINUTE_NS
    whole = Window(max(0, end_ns - length_ns - MINUTE_NS), end_ns)

    def read() -> list[str]:
        with store_errors():
            return label_values(engine, whole, label)

    return shared(engine, ("values", label, whole), read)


def _zone() -> tzinfo:
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a folder, such as America
        return UTC


def _wait_for_database() -> None:
    try:
        opened(default_url())
    except DatabaseMissing:
        no_data.no_server()
    except StoreError as error:
        no_data.unreadable(str(error))
    else:
        st.rerun()


def _try_again() -> None:
    # Streamlit first calls this function while it runs the page. A rerun would then never end.
    if time.time_ns() - st.session_state["now_unix_ns"] > SECOND_NS:
        st.rerun()
