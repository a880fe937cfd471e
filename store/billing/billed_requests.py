"""Sum the billed requests of a time range by label and hour.

The requests are read from rollups, because reading their rows would take longer. Rollups count a
request in the hour of its receipt. If a request spans the end of an hour, its row is read. Its
seconds are then divided between the hours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from sqlalchemy import Engine

from store.queries import request_table, simulated_requests
from store.rollups.buckets import RollupSums, nothing, sums_of
from store.rollups.marks import SECOND_NS
from store.rollups.queries import rollups
from store.rollups.tables import HOUR_S, MINUTE_S
from telemetry.billing_data import AMOUNTS, BillingCells
from telemetry.counter_series import FloatArray, IntArray
from telemetry.window import Window

_MINUTE_NS: Final = MINUTE_S * SECOND_NS
_LONGEST_S: Final = 3_600.0
"""Rows that were received up to this many seconds before the end of an hour are read. If a request
takes longer, all its seconds count in the hour of its receipt."""
_SPAN: Final = ("frontend_s", "queue_s", "prefill_s", "decode_s", "e2e_s")
_SECONDS: Final = ("billed_s", "wasted_s")


@dataclass(frozen=True, slots=True)
class BilledRequests:
    """The billed requests of a window."""

    window: Window
    cells: BillingCells
    apportioned: bool
    deleted_before_ns: int
    overflowed: int
    simulated: bool


def billed_requests(engine: Engine, window: Window, by: Sequence[str]) -> BilledRequests:
    """Read the billed requests of a window.

    Args:
        window: widened to whole minutes, or to hours if the per-minute rollups were deleted.
        by: the labels to group requests by.
    """
    first_s = window.from_unix_ns // SECOND_NS // HOUR_S * HOUR_S
    found = rollups(engine, window, by=by, step_s=HOUR_S, first_unix_s=first_s)
    if found is None:
        return _of_rows(engine, window, by)
    answered = found.plan.window
    sums = found.sums([*AMOUNTS, "e2e_s"])
    number = found.steps.number
    cells = _cells(by, list(found.groups), sums, found.steps.first_unix_s, number)
    longest = {
        int(hour): float(np.max(_facts(sums, "e2e_s")[sums.cells % number == step, 3]))
        for step in np.unique(sums.cells % number).tolist()
        for hour in [found.steps.first_unix_s + step * HOUR_S]
    }
    earlier_ns = max(0, answered.from_unix_ns - HOUR_S * SECOND_NS)
    before = rollups(engine, Window(earlier_ns, answered.from_unix_ns))
    if before is not None:
        longest[-1] = float(np.max(_facts(before.sums(["e2e_s"]), "e2e_s")[:, 3], initial=0.0))
    deleted_before_ns = found.requests_deleted_before_unix_ns()
    cells, whole = _apportioned(engine, answered, cells, longest, deleted_before_ns)
    return BilledRequests(
        answered, cells, whole, deleted_before_ns, found.hidden().other, simulated=found.simulated
    )


def _of_rows(engine: Engine, window: Window, by: Sequence[str]) -> BilledRequests:
    answered = Window(
        window.from_unix_ns // _MINUTE_NS * _MINUTE_NS,
        -(-window.to_unix_ns // _MINUTE_NS) * _MINUTE_NS,
    )
    columns = list(dict.fromkeys(("received_unix_ns", *by, *AMOUNTS, "e2e_s")))
    table = request_table(engine, answered, columns=columns)
    hours = table["received_unix_ns"].to_numpy() // SECOND_NS // HOUR_S * HOUR_S
    labels, which = _labelled([table[name].to_pylist() for name in by], table.num_rows)
    span = int(hours.max() - hours.min()) // HOUR_S + 1 if hours.size else 1
    first = int(hours.min()) if hours.size else 0
    sums = sums_of(table, which * span + (hours - first) // HOUR_S, [*AMOUNTS, "e2e_s"])
    cells = _cells(by, labels, sums, first, span)
    longest = dict.fromkeys(np.unique(hours).tolist(), _LONGEST_S)
    cells, whole = _apportioned(engine, answered, cells, {**longest, -1: _LONGEST_S}, 0)
    return BilledRequests(
        answered, cells, whole, 0, 0, simulated=simulated_requests(engine, answered)
    )


def _cells(
    by: Sequence[str],
    labels: list[tuple[str | None, ...]],
    sums: RollupSums,
    first_unix_s: int,
    hours: int,
) -> BillingCells:
    """Convert sums to cells. A cell is the sum of a group's requests in one hour. A number in
    `sums.cells` is group × `hours` + hour. Hour 0 begins at `first_unix_s`."""
    return BillingCells(
        by=by,
        labels=labels,
        group=sums.cells // hours,
        hour_unix_s=first_unix_s + sums.cells % hours * HOUR_S,
        requests=sums.requests,
        sums={name: _facts(sums, name)[:, 1] for name in AMOUNTS},
        reported={name: _facts(sums, name)[:, 0] for name in AMOUNTS},
    )


def _facts(sums: RollupSums, name: str) -> FloatArray:
    return sums.facts.get(name, nothing(sums.cells.size))


def _labelled(
    columns: Sequence[Sequence[Any]], number: int
) -> tuple[list[tuple[str | None, ...]], IntArray]:
    known: dict[tuple[str | None, ...], int] = {}
    which = np.zeros(number, np.int64)
    for place, values in enumerate(zip(*columns, strict=True)):
        which[place] = known.setdefault(_as_texts(values), len(known))
    return list(known), which


def _as_texts(values: Iterable[Any]) -> tuple[str | None, ...]:
    return tuple(str(each).lower() if isinstance(each, bool) else each for each in values)


def _apportioned(
    engine: Engine,
    window: Window,
    cells: BillingCells,
    longest_s: Mapping[int, float],
    deleted_before_ns: int,
) -> tuple[BillingCells, bool]:
    """Move the seconds after the end of an hour to the next hour.

    Args:
        longest_s: maps the start of each hour (unix seconds) to the duration of its longest
            request. The key −1 is the 3,600 s before the window.

    Returns: the cells, and whether the rows of all requests that span an hour's end still exist.
    """
    start, end = window.from_unix_ns, window.to_unix_ns
    hour_ns = HOUR_S * SECOND_NS
    inner = range((start // hour_ns + 1) * hour_ns, end, hour_ns)
    places = {labels: place for place, labels in enumerate(cells.labels)}
    moved: list[tuple[int, int, float, float]] = []
    whole = True
    for edge in (start, *inner, end):
        hour = (edge - 1) // hour_ns * HOUR_S
        reach_s = min(_longest_s_before(edge, start, longest_s), _LONGEST_S)
        if not reach_s > 0:
            continue
        from_ns = max(0, edge - int((reach_s + 1) * SECOND_NS))
        if from_ns < deleted_before_ns:
            whole = False
            continue
        for mine, billed_s, wasted_s in _over_the_edge(engine, Window(from_ns, edge), cells.by):
            group = places.setdefault(mine, len(places))
            if edge > start:
                moved.append((group, hour, -billed_s, -wasted_s))
            if edge < end:
                moved.append((group, edge // hour_ns * HOUR_S, billed_s, wasted_s))
    if not moved:
        return cells, whole
    groups, hours, billed, wasted = (np.array(column) for column in zip(*moved, strict=True))
    zeros = np.zeros(len(moved))
    more = {**dict.fromkeys(AMOUNTS, zeros), "billed_s": billed, "wasted_s": wasted}
    return (
        replace(
            cells,
            labels=list(places),
            group=np.concatenate([cells.group, groups]),
            hour_unix_s=np.concatenate([cells.hour_unix_s, hours]),
            requests=np.concatenate([cells.requests, zeros.astype(np.int64)]),
            sums={name: np.concatenate([cells.sums[name], more[name]]) for name in AMOUNTS},
            reported={name: np.concatenate([cells.reported[name], zeros]) for name in AMOUNTS},
        ),
        whole,
    )


def _longest_s_before(edge: int, start: int, longest_s: Mapping[int, float]) -> float:
    """An upper bound of the duration of the longest request in the hour before `edge`. If `edge` is
    not a full hour, this hour overlaps two clock hours, so the result may be too high."""
    first = edge - HOUR_S * SECOND_NS
    hours = [-1] if first < start else []
    if edge > start:
        hours += range(first // SECOND_NS // HOUR_S * HOUR_S, edge // SECOND_NS, HOUR_S)
    return max((longest_s.get(hour, 0.0) for hour in hours), default=0.0)


def _over_the_edge(
    engine: Engine, before: Window, by: Sequence[str]
) -> list[tuple[tuple[str | None, ...], float, float]]:
    """Find the requests that were running at the end of the window `before`. Return their labels,
    and their billed and wasted seconds after that end."""
    columns = list(dict.fromkeys(("received_unix_ns", *by, *_SPAN, *_SECONDS)))
    edge = before.to_unix_ns
    table = request_table(engine, before, columns=columns, ended_after_unix_ns=edge)
    found = []
    for row in table.to_pylist():
        if row["billed_s"] is None:
            continue
        begins = row["received_unix_ns"]
        length_s = row["e2e_s"]
        if row["prefill_s"] is not None:
            begins += ((row["frontend_s"] or 0.0) + (row["queue_s"] or 0.0)) * SECOND_NS
            length_s = row["prefill_s"] + (row["decode_s"] or 0.0)
        ends = begins + length_s * SECOND_NS
        if ends <= edge:
            continue
        share = min(1.0, (ends - edge) / (ends - begins))
        mine = _as_texts(row[name] for name in by)
        found.append((mine, row["billed_s"] * share, (row["wasted_s"] or 0.0) * share))
    return found
