"""The neighbours of a request, and how long they delayed it. Pure.

A neighbour is a request in the same engine at the same time. Times are seconds since the request's
receipt, limited to its duration.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from analysis.over_time.columns import FloatArray, floats, instants
from diagnosis.one_request.account import LatencyAccount
from ui.kit import wording
from ui.kit.request_key import RequestKey

MAX_DRAWN: Final = 24
"""Maximum number of neighbours in the chart. A batch may contain hundreds of requests."""

HIDDEN: Final = "(hidden)"
"""The name of a request that the reader may not see."""

COLUMNS: Final = ("request_id", "tenant", "outcome", "e2e_s", "frontend_s", "queue_s", "prefill_s")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A request in the same engine."""

    key: RequestKey
    name: str
    tenant: str | None
    from_s: float
    to_s: float
    prefill_from_s: float | None
    prefill_to_s: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    cost_s: float
    tokens_meanwhile: float


@dataclass(frozen=True, slots=True)
class Neighbours:
    """A request's neighbours.

    `drawn` has at most `MAX_DRAWN` neighbours. The neighbours with the longest delays are first,
    then the neighbours with the longest overlaps.
    """

    drawn: Sequence[Neighbour]
    number: int
    cost_s: float
    costly: int
    """Number of neighbours that delayed the request."""


def neighbours_of(table: pa.Table, victim: int, account: LatencyAccount) -> Neighbours:
    """The neighbours of the request in row `victim`.

    `table` is from `store.requests.neighbours`, with `COLUMNS` and tokens. `account` has the delay
    that the request of each row caused.
    """
    received = instants(table, "received_unix_ns")
    begun_s = (received - received[victim]) / 1e9
    ended_s = begun_s + np.nan_to_num(floats(table, "e2e_s"))
    end_s = float(ended_s[victim])
    queued_s = begun_s + np.nan_to_num(floats(table, "frontend_s"))
    scheduled_s = queued_s + floats(table, "queue_s")
    first_token_s = scheduled_s + floats(table, "prefill_s")
    cost = {each.row: each for each in account.delayed_by}
    together_s = np.minimum(ended_s, end_s) - np.maximum(begun_s, 0.0)
    others = [
        int(place)
        for place in np.argsort(-together_s, kind="stable")
        if place != victim and place not in cost and together_s[place] >= 0
    ]
    number = len(cost) + len(others)
    first = list(cost)[:MAX_DRAWN]
    beside = others[: MAX_DRAWN - len(first)]
    chosen = [*first, *sorted(beside, key=lambda place: begun_s[place])]
    rows = table.take(pa.array(chosen, pa.int64())).to_pylist()

    def one(place: int, row: dict[str, Any]) -> Neighbour:
        prefill = (scheduled_s[place], first_token_s[place])
        seen = bool(np.isfinite(prefill).all()) and prefill[0] < end_s and prefill[1] > 0
        return Neighbour(
            key=RequestKey(None, row["trace_id"], row["span_id"]),
            name=row["request_id"] or row["trace_id"] or HIDDEN,
            tenant=row["tenant"],
            from_s=max(0.0, float(begun_s[place])),
            to_s=min(end_s, float(ended_s[place])),
            prefill_from_s=_clamped(prefill[0], end_s) if seen else None,
            prefill_to_s=_clamped(prefill[1], end_s) if seen else None,
            prompt_tokens=row["prompt_tokens"],
            output_tokens=row["output_tokens"],
            cost_s=cost[place].cost_s if place in cost else 0.0,
            tokens_meanwhile=cost[place].tokens if place in cost else 0.0,
        )

    return Neighbours(
        [one(place, row) for place, row in zip(chosen, rows, strict=True)],
        number,
        sum(each.cost_s for each in account.delayed_by),
        len(cost),
    )


def sentence(found: Neighbours) -> str:
    """The number of neighbours, and how long they delayed the request."""
    if not found.number:
        return "No other request shared its engine."
    text = f"{wording.counted(found.number, 'other request')} shared its engine"
    if found.costly:
        text += (
            f"; the prefills of {wording.count(found.costly)} of them delayed it by "
            f"{wording.seconds(found.cost_s)}"
        )
    else:
        text += "; no delay by their prefills was recorded"
    if found.number > len(found.drawn):
        text += f". The chart shows {len(found.drawn)}: those with the longest delay or overlap"
    return f"{text}."


def _clamped(at_s: FloatArray | float, end_s: float) -> float:
    return min(max(float(at_s), 0.0), end_s)
