"""The interface between a page and the frame around it."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, Protocol, TypeVar

import streamlit as st
from sqlalchemy import Engine

from analysis.over_time.time_bins import SECOND_NS
from analysis.staleness import STALE_S, silence_s
from telemetry.window import Window
from ui.frame.objectives import Objectives
from ui.frame.pages import ExplorerPage
from ui.frame.read_cache import catching_up, shared
from ui.frame.view import View
from ui.kit import charts, colours
from ui.kit.unreadable import store_errors

Read = TypeVar("Read")


SETTLED_S: Final = 120
"""Seconds from a range's end until its data is complete. Spans arrive within 5 s. Bills and rollups
of a minute are complete when the minute has ended."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the frame passes to a page each time the page is drawn."""

    engine: Engine
    page: ExplorerPage
    view: View
    now_unix_ns: int
    zone: tzinfo
    objectives: Objectives

    @property
    def window(self) -> Window:
        """The selected range. The end of a live range is a multiple of the refresh interval, so
        that viewers share reads."""
        now_unix_ns = self.now_unix_ns
        if self.view.live and self.view.last is not None:
            step_ns = self.page.refresh_s[self.view.last] * SECOND_NS
            now_unix_ns = now_unix_ns // step_ns * step_ns
        return self.view.window(now_unix_ns)

    @property
    def axis_zone(self) -> tzinfo:
        """The time zone of charts (`charts.axis_zone`)."""
        return charts.axis_zone(self.zone, self.window)

    @property
    def length_s(self) -> float:
        """Length of the range in seconds."""
        return self.window.length_s

    @property
    def ink(self) -> colours.Ink:
        """The line colours of the current theme."""
        return colours.ink(st.context.theme.type)

    def shared(self, read: Callable[[], Read], *more: Hashable, large: bool = False) -> Read:
        """Return the result of `read`, from the cache if possible.

        Args:
            more: the parts of the cache key besides page, range and filters.
            large: whether the result has a row per request.

        Raises:
            Unreadable: the store does not respond.
        """

        def read_store() -> Read:
            with store_errors():
                return read()

        filters = tuple(sorted(self.view.equals.items()))
        # Once the data of a range is complete, results from incomplete data must not be used.
        key = (self.page.key, self.window, self.settled, filters, *more)
        return shared(self.engine, key, read_store, large=large)

    @property
    def settled(self) -> bool:
        """Whether the data of the range is complete."""
        return self.now_unix_ns - self.window.to_unix_ns > SETTLED_S * SECOND_NS

    def silence_s(self, newest_unix_ns: int | None) -> float | None:
        """Seconds without new data on a live page, or None if data arrives."""
        if not self.view.live or self.catching_up(newest_unix_ns):
            return None
        return silence_s(newest_unix_ns, self.now_unix_ns, self.now_unix_ns)

    def catching_up(self, newest_unix_ns: int | None) -> bool:
        """Whether old data is arriving, for example when the simulator starts."""
        if newest_unix_ns is None or not self.view.live:
            return False
        return catching_up(self.engine, newest_unix_ns, self.now_unix_ns, STALE_S)


class PageData(Protocol):
    """The result of a page's `read`."""

    @property
    def newest_unix_ns(self) -> int | None:
        """Timestamp of the newest data in the store."""

    @property
    def simulated(self) -> bool:
        """Whether some data comes from the simulator."""


class PageModule(Protocol):
    """The interface of the module `page` in a page's folder."""

    def read(self, context: Context) -> PageData:
        """Read the store.

        Raises:
            CannotShow: a file that the page depends on is invalid.
            Unreadable: the store does not respond.
        """

    def show(self, context: Context, found: Any) -> None:
        """Draw the result of `read`."""


class CannotShow(Exception):  # noqa: N818 -- it names the state of the page
    """The page cannot be shown. `sentence` is the headline. `reason` explains the problem and how
    to fix it."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.reason = reason
