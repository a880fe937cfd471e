"""Store the requests that are replayed, as columns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

SAME_S = 1e-6
"""Two durations are treated as equal if they differ by less than this value."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prefixes:
    """The shared prefixes of prompts, each divided into a few segments.

    If two requests have a segment with the same key, their tokens are equal up to the end of this
    segment. A segment may extend into the output, because the next prompt of a conversation
    contains the output. Request i has the segments `offsets[i]` to `offsets[i + 1] - 1`.
    """

    offsets: IntArray
    """(n + 1,) index of the first segment of each of the n requests. The final element is m, the
    number of segments."""
    keys: IntArray
    """(m,) the key of each segment, any integer."""
    end_tokens: IntArray
    """(m,) number of tokens from the prompt's start to the segment's end, ascending within a
    request."""
    common: BoolArray | None = None
    """(m,) whether the segment is common to many users, such as a system prompt. All copies of a
    request share its common segments. Each copy of a request belongs to a different user, so two
    copies of one request do not share the other segments. The first copies of several requests do
    share them, if the original requests do. If `common` is None, all copies of a request have equal
    prompts."""

    def __post_init__(self) -> None:
        m = len(self.keys)
        if len(self.end_tokens) != m or self.offsets[0] != 0 or self.offsets[-1] != m:
            raise ValueError(
                f"prefixes: {m} keys, {len(self.end_tokens)} ends, offsets from {self.offsets[0]}"
                f" to {self.offsets[-1]}; allowed: one end per key, offsets from 0 to the number of"
                " keys"
            )
        first = np.zeros(m + 1, dtype=bool)
        first[self.offsets] = True
        if ((np.diff(self.end_tokens) < 0) & ~first[1:m]).any():
            raise ValueError("prefixes.end_tokens: must not descend within a request")

    def select(self, rows: IntArray) -> Self:
        """Return the prefixes of the requests with the indices `rows`, in this order. An index may
        be repeated."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        keys = self.keys[places]
        common = None if self.common is None else self.common[places]
        if common is not None and keys.size:
            repetition = np.repeat(_repetitions(rows), lengths)
            another = int(self.keys.max()) + 1 - min(int(self.keys.min()), 0)
            keys = np.where(common, keys, keys + repetition * another)
        return type(self)(
            offsets=offsets, keys=keys, end_tokens=self.end_tokens[places], common=common
        )

    def users(self) -> IntArray:
        """Return a number that identifies each request's user: (n,). Requests that share a segment
        have the same user, unless the segment is common."""
        n = len(self.offsets) - 1
        found = np.arange(n)
        if self.common is None or not self.keys.size:
            return found
        rows = np.repeat(np.arange(n), np.diff(self.offsets))
        own = ~self.common
        having, first = np.unique(rows[own], return_index=True)
        found[having] = n + np.unique(self.keys[own][first], return_inverse=True)[1].reshape(-1)
        return found

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the prefixes of several groups of requests."""
        lengths = np.concatenate([np.diff(each.offsets) for each in parts])
        known = [each.common for each in parts if each.common is not None]
        return cls(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            keys=np.concatenate([each.keys for each in parts]),
            end_tokens=np.concatenate([each.end_tokens for each in parts]),
            common=np.concatenate(known) if len(known) == len(parts) else None,
        )


def _repetitions(rows: IntArray) -> IntArray:
    """Return for each element of `rows` how many earlier elements are equal to it."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    begins = np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    found = np.empty(len(rows), dtype=np.int64)
    found[order] = np.arange(len(rows)) - begins
    return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Arrivals:
    """Recorded requests in order of receipt. A column that is None has the default value."""

    received_s: FloatArray
    """(n,) time of receipt in seconds, ascending. Ignored for requests with a value in the column
    `after`."""
    prompt_tokens: IntArray
    """(n,) number of prompt tokens, at least 1."""
    output_tokens: IntArray
    """(n,) number of produced tokens, at least 1. If the client cancelled the request, it is less
    than the requested number."""
    prefixes: Prefixes | None = None
    """Shared prefixes of the prompts."""
    cached_tokens: IntArray | None = None
    """(n,) minimum number of prompt tokens that count as cached. Set this column for traffic
    without `prefixes`, or with tokens that were cached before the recording. Default: 0."""
    frontend_s: FloatArray | None = None
    """(n,) seconds from receipt until the front end passes the request to the engine. They exclude
    the wait for the end of the engine's current step. For a recorded request, the value is its
    `frontend_s` minus its `handoff_s`. If NaN, the front-end model computes this time."""
    held_s: FloatArray | None = None
    """(n,) seconds for which the request waits for a KV transfer or a grammar, after the front
    end's work. The queue time includes these seconds. Default: 0."""
    adapter: IntArray | None = None
    """(n,) number of the request's LoRA adapter, or −1. A request waits while the running requests
    already use `max_loras` other adapters. The replay does not model how long an adapter loads.
    Default: −1."""
    priority: IntArray | None = None
    """(n,) priority for the policy `priority`; the lowest value is served first. Default: 0."""
    acceptance: FloatArray | None = None
    """(n,) probability that a drafted token is accepted. Default: 0."""
    streamed: BoolArray | None = None
    """(n,) whether the response is streamed. Default: True."""
    after: IntArray | None = None
    """(n,) for closed loops: index of the earlier request whose response the client awaits before
    it sends this request. Default: −1 (no such request)."""
    think_s: FloatArray | None = None
    """(n,) for closed loops: seconds from the last byte of the earlier request's response until the
    client sends this request. Default: 0."""
    tenant: IntArray | None = None
    """(n,) index of the request's tenant, which does not affect the replay."""

    def __post_init__(self) -> None:
        n = len(self.received_s)
        for each in fields(self):
            column = getattr(self, each.name)
            if column is None or isinstance(column, Prefixes):
                continue
            if column.shape != (n,):
                raise ValueError(
                    f"{each.name}: shape {column.shape}; allowed: ({n},), one element per request"
                )
        free = self.received_s if self.after is None else self.received_s[self.after < 0]
        if not np.isfinite(free).all() or (np.diff(free) < 0).any():
            raise ValueError("received_s: must be finite and in ascending order")
        for name in ("prompt_tokens", "output_tokens"):
            lowest = getattr(self, name).min(initial=1)
            if lowest < 1:
                raise ValueError(f"{name}: {lowest}; allowed: 1 or more")
        if self.after is not None and (self.after >= np.arange(n)).any():
            row = int(np.argmax(self.after >= np.arange(n)))
            raise ValueError(f"after: {self.after[row]} for request {row}; allowed: below {row}")
        if self.think_s is not None and not (self.think_s >= 0).all():
            raise ValueError("think_s: allowed: 0 or more")
        if self.prefixes is not None and len(self.prefixes.offsets) != n + 1:
            raise ValueError(f"prefixes.offsets: {len(self.prefixes.offsets)}; allowed: {n + 1}")

    def __len__(self) -> int:
        return len(self.received_s)

    def select(self, rows: IntArray, received_s: FloatArray | None = None) -> Self:
        """Return the requests with the indices `rows`, in this order. An index may be repeated, as
        in a bootstrap.

        A request stays linked to the request in its column `after` only if both are moved by the
        same number of seconds.

        Args:
            rows: indices of requests, in order of receipt if `received_s` is None.
            received_s: new times of receipt, or None to keep the recorded times.

        Raises:
            ValueError: the times of receipt are not ascending.
        """
        chosen: dict[str, Any] = {
            each.name: column if column is None else column[rows]
            for each in fields(self)
            if each.name not in ("prefixes", "after")
            for column in [getattr(self, each.name)]
        }
        if received_s is not None:
            chosen["received_s"] = received_s
        prefixes = None if self.prefixes is None else self.prefixes.select(rows)
        after = self._followed(rows, chosen["received_s"])
        return type(self)(prefixes=prefixes, after=after, **chosen)

    def _followed(self, rows: IntArray, received_s: FloatArray) -> IntArray | None:
        if self.after is None or not (self.after >= 0).any():
            return self.after if self.after is None else self.after[rows]
        found = np.full(len(rows), -1, dtype=np.int64)
        if not len(rows):
            return found
        moved_s = received_s - self.received_s[rows]
        ticks = np.rint((moved_s - moved_s.min()) / SAME_S).astype(np.int64) + 1
        width = int(ticks.max()) + 2
        keys, places = rows * width + ticks, np.arange(len(rows))
        order = np.argsort(keys, kind="stable")
        before = self.after[rows]
        # Rounding can put two equal durations into neighbouring ticks.
        for near in (0, -1, 1):
            wanted = before * width + ticks + near
            at = np.minimum(np.searchsorted(keys[order], wanted), len(rows) - 1)
            place = order[at]
            same = (keys[place] == wanted) & (np.abs(moved_s[place] - moved_s) < SAME_S)
            linked = (before >= 0) & (found < 0) & same & (place < places)
            found[linked] = place[linked]
        return found
