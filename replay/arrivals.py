"""Requests to replay, as columns.

Pure. A question about the traffic is a transformed copy: a column replaced, rows selected, times
stretched.
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

SAME_S = 1e-6
"""Rounding of the difference of two instants."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prefixes:
    """What the prompts share: for each request a few segments, from the prompt's start.

    Two requests with the same key in a segment have equal prompts up to its end. A request's
    segments are those from `offsets[n]` to `offsets[n + 1]`. The rest of a prompt is its own.
    """

    offsets: IntArray
    """(n + 1,)"""
    keys: IntArray
    """(m,) any integers."""
    end_tokens: IntArray
    """(m,) prompt tokens from the prompt's start to the segment's end; ascending per request."""

    def __post_init__(self) -> None:
        m = len(self.keys)
        if len(self.end_tokens) != m or self.offsets[0] != 0 or self.offsets[-1] != m:
            raise ValueError(
                f"prefixes: {m} keys, {len(self.end_tokens)} ends, offsets from {self.offsets[0]} "
                f"to {self.offsets[-1]}; allowed: one end per key, offsets from 0 to their number"
            )
        first = np.zeros(m + 1, dtype=bool)
        first[self.offsets] = True
        if ((np.diff(self.end_tokens) <= 0) & ~first[1:m]).any():
            raise ValueError("prefixes.end_tokens: allowed: ascending for each request")

    def select(self, rows: IntArray) -> Self:
        """Return the prefixes of these requests, in this order; rows may repeat."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return type(self)(
            offsets=offsets, keys=self.keys[places], end_tokens=self.end_tokens[places]
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Arrivals:
    """Recorded requests, in order of receipt. A column that is None has its default everywhere."""

    received_s: FloatArray
    """(n,) when the server receives each; ascending. Ignored for a request that follows another."""
    prompt_tokens: IntArray
    """(n,) at least 1."""
    output_tokens: IntArray
    """(n,) tokens that were produced, at least 1; fewer than asked for if the client left."""
    prefixes: Prefixes | None = None
    """What prompts share; the engine's KV cache then decides what is cached."""
    cached_tokens: IntArray | None = None
    """(n,) prompt tokens that count as cached, whatever the modelled cache holds; 0 by default. For
    traffic without `prefixes`."""
    frontend_s: FloatArray | None = None
    """(n,) seconds from receipt until the engine is given the request, without the wait for the
    engine's current step (`frontend_s - handoff_s` of a recorded row). NaN: by the model."""
    priority: IntArray | None = None
    """(n,) for the policy `priority`: the lowest value first; 0 by default."""
    acceptance: FloatArray | None = None
    """(n,) probability that a drafted token is accepted; 0 by default."""
    streamed: BoolArray | None = None
    """(n,) whether tokens are sent as they are produced; true by default."""
    after: IntArray | None = None
    """(n,) closed loops: the request whose answer this request's client waits for; −1 for none,
    the default. A request may follow only one that stands before it."""
    think_s: FloatArray | None = None
    """(n,) seconds between that answer's last byte and this request; 0 by default."""
    tenant: IntArray | None = None
    """(n,) whose request it is. Not used by the replay: for selecting rows and results."""

    def __post_init__(self) -> None:
        n = len(self.received_s)
        for each in fields(self):
            column = getattr(self, each.name)
            if column is None or isinstance(column, Prefixes):
                continue
            if column.shape != (n,):
                raise ValueError(
                    f"{each.name}: shape {column.shape}; allowed: ({n},), one value per request"
                )
        free = self.received_s if self.after is None else self.received_s[self.after < 0]
        if not np.isfinite(free).all() or (np.diff(free) < 0).any():
            raise ValueError("received_s: allowed: finite, in ascending order")
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
        """Return these requests, in this order; rows may repeat (a bootstrap).

        A request still follows another one if both are moved by the same time.

        Args:
            rows: in order of receipt, unless they get other instants.
            received_s: their instants of receipt; None for the recorded ones.

        Raises:
            ValueError: the instants are not ascending.
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
        """Return `after` of selected rows."""
        if self.after is None or not (self.after >= 0).any():
            return self.after if self.after is None else self.after[rows]
        found = np.full(len(rows), -1, dtype=np.int64)
        moved_s = received_s - self.received_s[rows]
        latest: dict[int, int] = {}
        for place, row in enumerate(rows.tolist()):
            before = latest.get(int(self.after[row]), -1)
            if before >= 0 and abs(moved_s[before] - moved_s[place]) < SAME_S:
                found[place] = before
            latest[row] = place
        return found
