"""Compute the work of other requests that share the engine with each request (README.md). Pure."""

from dataclasses import dataclass

import numpy as np

from replay.arrivals import FloatArray, IntArray

_SHORTEST_S = 1e-3
"""Assumed duration in seconds of a prefill whose recorded start and end are the same instant."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Instants:
    """The times at which requests were served, in seconds from a common origin."""

    engine: IntArray
    """(n,) the number of the engine that served each request, from 0."""
    received_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    last_token_s: FloatArray
    uncached_tokens: FloatArray
    cached_tokens: FloatArray
    output_tokens: FloatArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SharedWork:
    """The work of other requests that run at the same time as each request. A pair is an attention
    pair: a token and an earlier token."""

    running: FloatArray
    """(n,) number of decoding requests at arrival."""
    waiting: FloatArray
    """(n,) number of requests that were not scheduled yet at arrival."""
    wait_running: FloatArray
    """(n,) mean number of decoding requests between the arrival and the first token."""
    wait_context: FloatArray
    """(n,) mean number of tokens that the requests in `wait_running` have in the KV cache."""
    wait_prefill_tokens: FloatArray
    """(n,) prompt tokens of other requests that were computed between the arrival and the first
    token."""
    wait_prefill_pairs: FloatArray
    """(n,) attention pairs of the tokens in `wait_prefill_tokens`."""
    decode_running: FloatArray
    """(n,) mean number of decoding requests during the decode. It is NaN if there is no decode."""
    decode_context: FloatArray
    """(n,) mean number of tokens that the requests in `decode_running` have in the KV cache."""
    decode_prefill_tokens: FloatArray
    """(n,) prompt tokens of other requests that were computed during the decode, per output token
    after the first."""
    decode_prefill_pairs: FloatArray
    """(n,) attention pairs of the tokens in `decode_prefill_tokens`, per output token after the
    first."""


def pairs_of(uncached_tokens: FloatArray, cached_tokens: FloatArray) -> FloatArray:
    """The attention pairs of prompts. Each token attends to all tokens before it."""
    return uncached_tokens * (cached_tokens + uncached_tokens / 2)


def shared_work(of: Instants) -> SharedWork:
    """The work of other requests that run at the same time as each request. `of` must contain all
    requests of the engines."""
    size = of.received_s.size
    found = {name: np.full(size, np.nan) for name in SharedWork.__dataclass_fields__}
    for engine in np.unique(of.engine):
        rows = np.flatnonzero(of.engine == engine)
        part = Instants(**{name: getattr(of, name)[rows] for name in Instants.__dataclass_fields__})
        for name, values in _of_one_engine(part).items():
            found[name][rows] = values
    return SharedWork(**found)


def _of_one_engine(of: Instants) -> dict[str, FloatArray]:
    received, first, last = of.received_s, of.first_token_s, of.last_token_s
    scheduled = np.clip(of.scheduled_s, received, first)
    prefill_s = np.maximum(first - scheduled, _SHORTEST_S)
    begun = first - prefill_s
    queued = np.minimum(received, begun)
    tokens, pairs = of.uncached_tokens, pairs_of(of.uncached_tokens, of.cached_tokens)
    context = of.uncached_tokens + of.cached_tokens + of.output_tokens / 2
    ones = np.ones(received.size)
    running, in_cache = _Level(first, last, ones), _Level(first, last, context)
    prefill = {
        "tokens": (tokens, _Level(begun, first, tokens / prefill_s)),
        "pairs": (pairs, _Level(begun, first, pairs / prefill_s)),
    }
    wait_s = np.maximum(first - received, _SHORTEST_S)
    decode_s = np.where(last > first, last - first, np.nan)
    steps = np.where(of.output_tokens > 1, of.output_tokens - 1, np.nan)
    return {
        "running": running.before(received),
        "waiting": _Level(queued, begun, ones).before(received),
        "wait_running": running.total(received, first) / wait_s,
        "wait_context": in_cache.total(received, first) / wait_s,
        "decode_running": running.total(first, last) / decode_s,
        "decode_context": in_cache.total(first, last) / decode_s,
        # Rounding can make a difference of two large sums slightly negative.
        **{
            f"wait_prefill_{name}": np.maximum(rate.total(received, first) - own, 0.0)
            for name, (own, rate) in prefill.items()
        },
        **{
            f"decode_prefill_{name}": np.maximum(rate.total(first, last), 0.0) / steps
            for name, (_, rate) in prefill.items()
        },
    }


class _Level:
    """A function of time (the level): at each instant, the sum of the heights of all requests that
    have started and not ended."""

    def __init__(self, starts: FloatArray, ends: FloatArray, heights: FloatArray) -> None:
        at = np.concatenate([starts, ends])
        order = np.argsort(at, kind="stable")
        self._at = at[order]
        self._heights = np.cumsum(np.concatenate([heights, -heights])[order])
        areas = self._heights[:-1] * np.diff(self._at)
        self._areas = np.concatenate([[0.0], np.cumsum(areas)])

    def before(self, at: FloatArray) -> FloatArray:
        """The level just before each instant of `at`."""
        places = np.searchsorted(self._at, at, side="left") - 1
        return np.where(places >= 0, self._heights[np.maximum(places, 0)], 0.0)

    def total(self, start: FloatArray, end: FloatArray) -> FloatArray:
        """The integrals of the level over time from `start[i]` to `end[i]`."""
        found = np.interp(end, self._at, self._areas) - np.interp(start, self._at, self._areas)
        return np.asarray(found)
