"""Cache store reads. Viewers with the same access rights share the results.

The end of a live range is a multiple of its refresh interval. All viewers of the range therefore
have the same cache key.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import streamlit as st
from sqlalchemy import Engine

from analysis.cached_evidence import CachedEvidence
from analysis.database import cache_key, is_restricted, open_to_read

CACHE_S: Final = 900
MAX_RESULTS: Final = 200
MAX_CACHED_READERS: Final = 64
"""Maximum number of readers in the cache. Readers with the same database and access rights count as
one reader."""
MAX_LARGE_RESULTS: Final = 4
"""Maximum number of results with a row per request. A result with a million requests takes about
300 MB."""

Read = TypeVar("Read")


def shared(
    engine: Engine, key: tuple[Hashable, ...], read: Callable[[], Read], *, large: bool = False
) -> Read:
    """Return the result of `read` for this key, from the cache if possible.

    Failures are not cached.

    Args:
        key: all values on which the result depends.
        read: returns the result. Viewers share it, so it must not be changed.
        large: whether the result has a row per request.
    """
    kept = _read_large if large else _read_small
    found: Read = kept((cache_key(engine), *key), read)
    return found


@st.cache_resource(ttl=CACHE_S, max_entries=MAX_RESULTS, show_spinner=False)
def _read_small(key: tuple[Hashable, ...], _read: Callable[[], Any]) -> Any:
    del key
    return _read()


@st.cache_resource(ttl=CACHE_S, max_entries=MAX_LARGE_RESULTS, show_spinner=False)
def _read_large(key: tuple[Hashable, ...], _read: Callable[[], Any]) -> Any:
    del key
    return _read()


@st.cache_resource(show_spinner=False)
def opened(url: str) -> Engine:
    """The open database, which all viewers share.

    Raises:
        StoreError: the database cannot be read.
    """
    return open_to_read(url)


def cached_evidence(engine: Engine) -> CachedEvidence:
    """The requests from which latency increases are explained.

    Viewers with the same rights share the cache.
    """
    kept = _restricted_evidence if is_restricted(engine) else _evidence
    found: CachedEvidence = kept(cache_key(engine), engine)
    return found


@st.cache_resource(show_spinner=False)
def _evidence(url: str, _engine: Engine) -> CachedEvidence:
    del url
    return CachedEvidence(_engine)


@st.cache_resource(max_entries=MAX_LARGE_RESULTS, show_spinner=False)
def _restricted_evidence(key: str, _engine: Engine) -> CachedEvidence:
    del key
    return CachedEvidence(_engine)


@dataclass(slots=True)
class _Newest:
    """The timestamp of the newest data, and the last time at which arriving old data advanced this
    timestamp."""

    at_unix_ns: int
    caught_up_unix_ns: int | None = None


@st.cache_resource(max_entries=MAX_CACHED_READERS, show_spinner=False)
def _newest(url: str) -> dict[str, _Newest]:
    return {}


def catching_up(engine: Engine, newest_unix_ns: int, now_unix_ns: int, old_s: float) -> bool:
    """Whether old data is arriving, for example after an outage or when the simulator starts.

    This is so if the newest timestamp in the database is older than `old_s` seconds, but has
    advanced within the last `old_s` seconds.
    """
    last = _newest(cache_key(engine)).setdefault("newest", _Newest(newest_unix_ns))
    old = now_unix_ns - newest_unix_ns > old_s * 10**9
    if newest_unix_ns > last.at_unix_ns:
        last.at_unix_ns = newest_unix_ns
        last.caught_up_unix_ns = now_unix_ns if old else None
    caught_up = last.caught_up_unix_ns
    return old and caught_up is not None and now_unix_ns - caught_up <= old_s * 10**9
