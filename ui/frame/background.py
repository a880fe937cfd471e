"""Slow answers of live pages. A thread computes each answer once for all viewers.

A page shows the newest finished answer, and starts to compute the next answer.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import streamlit as st
from sqlalchemy import Engine

from analysis.database import cache_key
from telemetry.store_errors import StoreError
from ui.frame.read_cache import MAX_CACHED_READERS

MAX_ANSWERS: Final = 50
"""Maximum number of stored answers. An answer is small, because it contains no row per request."""
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Kept:
    answer: Any = None
    version: Hashable = None
    running: Future[None] | None = None


@dataclass(slots=True)
class Background:
    """Maps each subject to its newest answer. A thread computes one answer at a time."""

    _kept: OrderedDict[Hashable, _Kept] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="answers")
    )

    def newest(self, subject: Hashable) -> Any:
        """The newest answer about a subject, or None."""
        with self._lock:
            kept = self._kept.get(subject)
            return None if kept is None else kept.answer

    def start(
        self, subject: Hashable, version: Hashable, compute: Callable[[], Any]
    ) -> Future[None] | None:
        """Compute an answer in the thread, unless this version is already computed.

        If the thread is already computing an answer about the subject, this call starts nothing.
        Failures are logged. After a store error, the version is computed again.

        Args:
            subject: what the answer is about. Only its newest answer is kept.
            version: all other values on which the answer depends.
            compute: returns the answer.

        Returns:
            A future for the running computation, or None.
        """
        with self._lock:
            kept = self._kept.setdefault(subject, _Kept())
            self._kept.move_to_end(subject)
            if kept.running is not None and not kept.running.done():
                return kept.running
            if kept.version == version:
                return None
            while len(self._kept) > MAX_ANSWERS:
                self._kept.popitem(last=False)
            kept.version = version
            kept.running = self._pool.submit(self._compute, kept, compute)
            return kept.running

    def _compute(self, kept: _Kept, compute: Callable[[], Any]) -> None:
        try:
            answer = compute()
        except StoreError as error:
            _log.warning("an answer of a page could not be computed: %s", error)
            with self._lock:
                kept.version = None
            return
        except Exception:
            _log.warning("an answer of a page could not be computed", exc_info=True)
            return
        with self._lock:
            kept.answer = answer


def background(engine: Engine) -> Background:
    """The answers for one database. Viewers with the same access share them."""
    found: Background = _of(cache_key(engine))
    return found


@st.cache_resource(max_entries=MAX_CACHED_READERS, show_spinner=False)
def _of(url: str) -> Background:
    del url
    return Background()
