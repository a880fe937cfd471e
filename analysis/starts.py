"""Divide the starts of engines into parts, and find the slow first requests after a start.

The first request of each shape can be slow, because kernels are compiled when they are first used.
Requests have the same shape if their uncached prompt tokens are between the same two powers of two.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from sqlalchemy import Engine

from diagnosis.evidence.start_parts import LEVERS, WORDS, largest_part
from diagnosis.inputs.requests import FloatArray, IntArray
from store.queries import request_table
from store.replicas.cold_starts import all_starts_between, next_start_unix_ns
from telemetry.cold_starts import ColdStart
from telemetry.window import Window

LABELS: Final = ("replica", "model", "region")
MAX_LISTED: Final = 20
"""Maximum number of starts in an answer. The newest are kept."""
FIRST_NS: Final = 600 * 10**9
"""Maximum length of the time after a start, in nanoseconds. Only requests in this time are
compared. It ends at the next start of the same engine."""
MAX_REQUESTS: Final = 5_000
"""Maximum number of requests to read after each start."""
EXITED: Final = "exit"
"""The value of a start's `failure` if the server ended without an exception."""
LATER: Final = 19
"""Minimum number of requests of a shape after its first request. The first of 20 equal requests is
the slowest by chance with a probability of 1 in 20."""
_COLUMNS: Final = (
    *("received_unix_ns", "engine", "prompt_tokens", "cached_tokens", "prefill_s"),
    *("prefill_others_prefill_s", "prefill_others_decode_s", "prefill_preempted_s"),
)


@dataclass(frozen=True, slots=True)
class StartsQuestion:
    """The starts that ended in a window, the labels that select them, and how many to list."""

    window: Window
    where: Mapping[str, str | None] = field(default_factory=dict)
    most: int = MAX_LISTED


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """The first request of a shape, if it was slower than all later requests of this shape.

    Attributes:
        from_tokens: minimum number of uncached prompt tokens of the shape.
        to_tokens: the shape has fewer uncached prompt tokens than this.
        prefill_s: the first request's prefill, without the work of other requests.
        usual_s: the median prefill of the later requests.
    """

    from_tokens: int
    to_tokens: int
    prefill_s: float
    usual_s: float
    later: int

    @property
    def excess_s(self) -> float:
        """Seconds of the first prefill above the median of the later prefills."""
        return self.prefill_s - self.usual_s


@dataclass(frozen=True, slots=True)
class Start:
    """One start, and the shapes whose first request was slow."""

    cold_start: ColdStart
    first_requests: Sequence[FirstRequest]
    compared: int
    """Number of shapes with enough requests."""

    @property
    def advice(self) -> str | None:
        """The largest part of the start and an action.

        Return None if the parts are unknown or the start failed."""
        found = largest_part(self.cold_start)
        if found is None or self.cold_start.reached is not None:
            return None
        part, part_s = found
        lever = LEVERS[part][0]
        flag = f", {lever.flag}" if lever.flag else ""
        return f"{WORDS[part]} took longest ({part_s:.3g} s). Try: {lever.action}{flag}."

    @property
    def failed(self) -> str | None:
        """Return the part in which the start failed, or None if it did not fail."""
        start = self.cold_start
        if start.reached is None:
            return None
        part_s = start.parts_s.get(start.reached)
        inside = "" if part_s is None else f", {part_s:.3g} s into it"
        reason = "the server ended" if start.failure in (None, EXITED) else start.failure
        return (
            f"failed after {start.length_s:.3g} s, in {WORDS.get(start.reached, start.reached)}"
            f"{inside}: {reason}."
        )


@dataclass(frozen=True, slots=True)
class StartsAnswer:
    """The newest starts of a window in order of time, and the number of all its starts that were
    read (`store.replicas.cold_starts.MAX_STARTS`)."""

    window: Window
    starts: Sequence[Start]
    number: int


def answer_starts(engine: Engine, question: StartsQuestion) -> StartsAnswer:
    """The starts of a window with their parts and slow first requests.

    Failed starts are included."""
    window = question.window
    found = all_starts_between(engine, window.from_unix_ns, window.to_unix_ns, question.where)
    listed = found[-question.most :]
    return StartsAnswer(window, [_start(engine, each) for each in listed], len(found))


def _start(engine: Engine, start: ColdStart) -> Start:
    if start.reached is not None:
        return Start(start, (), 0)
    ready_ns = start.ready_unix_ns
    next_ns = next_start_unix_ns(engine, start)
    table = request_table(
        engine,
        Window(ready_ns, min(ready_ns + FIRST_NS, next_ns or ready_ns + FIRST_NS)),
        equals={"replica": start.replica},
        columns=_COLUMNS,
        limit=MAX_REQUESTS,
    )
    columns = {
        name: np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64)
        for name in _COLUMNS[1:]
    }
    known_engine = columns["engine"]
    mine = np.isnan(known_engine) | (known_engine == start.engine)
    others = sum(np.nan_to_num(columns[name]) for name in _COLUMNS[-3:])
    tokens = columns["prompt_tokens"] - np.nan_to_num(columns["cached_tokens"])
    own_s = columns["prefill_s"] - others
    known = mine & np.isfinite(tokens) & (tokens >= 1) & np.isfinite(own_s)
    first, compared = slow_first_requests(
        np.floor(np.log2(tokens[known])).astype(np.int64), own_s[known]
    )
    return Start(start, first, compared)


def slow_first_requests(shapes: IntArray, prefill_s: FloatArray) -> tuple[list[FirstRequest], int]:
    """The shapes whose first request was slower than all later requests.

    Also return the number of compared shapes.

    Args:
        shapes: (n,) the shape of each request, ⌊log₂(uncached prompt tokens)⌋, in order of receipt.
        prefill_s: (n,) the prefill of each request, without delays by other requests.
    """
    by_shape: dict[int, list[float]] = defaultdict(list)
    for shape, seconds in zip(shapes.tolist(), prefill_s.tolist(), strict=True):
        by_shape[shape].append(seconds)
    found, compared = [], 0
    for shape, (first_s, *later_s) in sorted(by_shape.items()):
        if len(later_s) < LATER:
            continue
        compared += 1
        if first_s > max(later_s):
            usual_s = float(np.median(later_s))
            found.append(FirstRequest(2**shape, 2 ** (shape + 1), first_s, usual_s, len(later_s)))
    return found, compared
