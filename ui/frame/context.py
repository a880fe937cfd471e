"""What the frame passes to a page, and what the page returns."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Protocol, TypeVar

import streamlit as st
from sqlalchemy import Engine

from analysis.staleness import STALE_S, silence_s
from store.queries import Window
from ui.frame.objectives import Objectives
from ui.frame.pages import Page
from ui.frame.read_cache import catching_up, shared
from ui.frame.view import View
from ui.kit import colours
from ui.kit.store_reads import store_errors
from ui.kit.time_bins import SECOND_NS

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Context:
    """One rendering of a page."""

    engine: Engine
    page: Page
    view: View
    now_unix_ns: int
    zone: tzinfo
    """The reader's time zone."""
    objectives: Objectives

    @property
    def window(self) -> Window:
        """The range; that of a live page ends at a multiple of its refresh interval.

        Viewers who look at about the same time therefore share the same reads.
        """
        now_unix_ns = self.now_unix_ns
        if self.view.live and self.view.last is not None:
            step_ns = self.page.refresh_s[self.view.last] * SECOND_NS
            now_unix_ns = now_unix_ns // step_ns * step_ns
        return self.view.window(now_unix_ns)

    @property
    def length_s(self) -> float:
        """Length of the range in seconds."""
        return (self.window.to_unix_ns - self.window.from_unix_ns) / SECOND_NS

    @property
    def ink(self) -> colours.Ink:
        """The colours of lines on the theme's background."""
        return colours.ink(st.context.theme.type)

    def shared(self, read: Callable[[], Read], *more: Hashable, large: bool = False) -> Read:
        """Return what was read for this page, range and filters, from the cache if it is there.

        Args:
            read: reads it from the store.
            more: further values that the result depends on.
            large: whether the result holds single requests.

        Raises:
            Unreadable: the store does not answer.
        """

        def read_store() -> Read:
            with store_errors():
                return read()

        filters = tuple(sorted(self.view.equals.items()))
        key = (self.page.key, self.window, filters, *more)
        return shared(self.engine, key, read_store, large=large)

    def silence_s(self, newest_unix_ns: int | None) -> float | None:
        """Return for how many seconds a live page has had no data; None if data arrives."""
        if not self.view.live or self.catching_up(newest_unix_ns):
            return None
        return silence_s(newest_unix_ns, self.now_unix_ns, self.now_unix_ns)

    def catching_up(self, newest_unix_ns: int | None) -> bool:
        """Return whether old data is still arriving, as when the simulator starts."""
        if newest_unix_ns is None or not self.view.live:
            return False
        return catching_up(self.engine, newest_unix_ns, self.now_unix_ns, STALE_S)


class Found(Protocol):
    """What a page has read."""

    @property
    def newest_unix_ns(self) -> int | None:
        """The time of the newest data in the store; None before any arrived."""

    @property
    def simulated(self) -> bool:
        """Whether any of it comes from the simulator."""


class PageModule(Protocol):
    """The module `page` in a page's folder."""

    def read(self, context: Context) -> Found:
        """Read the store.

        Raises:
            CannotShow: a file that the page depends on is wrong.
            Unreadable: the store does not answer.
        """

    def show(self, context: Context, found: Any) -> None:
        """Draw what was read."""


class CannotShow(Exception):  # noqa: N818 -- it names the state of the page
    """The page cannot be shown: a sentence, and the reason.

    Args:
        sentence: the headline.
        reason: what is wrong and how to fix it.
    """

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.reason = reason
