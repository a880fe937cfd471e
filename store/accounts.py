"""What a bill rests on, read at once: engines by the minute, requests by label and hour.

Requests come from rollups where there are any, so that a day of ten million takes a second.
Rollups know when a request was received, a bill when it was worked on: of the few that were in
the engine as an hour (or the stretch) ended, the rows are read, and their seconds given to both
sides by time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from sqlalchemy import ColumnElement, Engine, Table, and_, func, select

from store.buckets import Sums, nothing, sums_of
from store.queries import Window, request_table, simulated_requests, simulated_samples
from store.reaching import reading
from store.rollup_marks import SECOND_NS
from store.rollup_queries import Rollups, rollups
from store.rollup_tables import HOUR_S, LABELS, MINUTE_S
from store.schema import GPUS, SAMPLES
from store.starts import in_force, starts_between
from telemetry.accounts import (
    AMOUNTS,
    COEFFICIENTS,
    WORK,
    Accounts,
    Cells,
    Count,
    EngineMinutes,
    FloatArray,
    GpuMinutes,
    IntArray,
)

BASE: Final = ("replica", "outcome", "model")
"""The labels that a bill needs, whatever it is asked by."""

_EDGE_NS: Final = 60 * SECOND_NS
"""So long before and after, an engine's samples are read: its counts at the edges."""
_MINUTE_NS: Final = MINUTE_S * SECOND_NS
_LONGEST_S: Final = 3_600.0
"""A request that took longer counts where it was received, for the rest of it."""
_SPAN: Final = ("frontend_s", "queue_s", "prefill_s", "decode_s", "e2e_s")
_SECONDS: Final = ("billed_s", "wasted_s")
_ALL: Final[Mapping[str, str | None]] = MappingProxyType({})


def accounts(engine: Engine, window: Window, by: Sequence[str] = ()) -> Accounts:
    """Read what a bill of a window rests on.

    Args:
        engine: from `open_database`.
        window: widened to whole minutes, or to hours where minutes are gone.
        by: labels to tell requests apart by, beside BASE.

    Raises:
        ValueError: a label that rollups do not tell.
        StoreUnavailable: the database does not answer.
    """
    if unknown := set(by) - set(LABELS):
        raise ValueError(f"no bill by {sorted(unknown)[0]!r}; allowed: {', '.join(LABELS)}")
    labels = tuple(dict.fromkeys((*BASE, *by)))
    read = _charged(engine, window, labels)
    start, end = read.window.from_unix_ns, read.window.to_unix_ns
    return Accounts(
        from_unix_ns=start,
        to_unix_ns=end,
        engines=engine_minutes(engine, read.window),
        gpus=gpu_minutes(engine, read.window),
        cells=read.cells,
        starts=(*in_force(engine, start), *starts_between(engine, start + 1, end)),
        simulated=read.simulated or simulated_samples(engine, read.window),
        apportioned=read.apportioned,
        engines_from_unix_ns=read.gone_ns,
        overflowed=read.overflowed,
    )


def engine_minutes(engine: Engine, window: Window) -> EngineMinutes:
    """The engines of a window by the minute, and of a minute on either side."""
    key = [SAMPLES.c[name] for name in Count._fields]
    # Without labels: ClickHouse would take one that is a column's name for the column.
    totals = [each(SAMPLES.c[name]) for name in WORK for each in (func.min, func.max)]
    means = [func.avg(SAMPLES.c[name]) for name in COEFFICIENTS]
    rows = _by_minute(engine, SAMPLES, window, key, [func.max(SAMPLES.c.region), *totals, *means])
    known: dict[Count, int] = {}
    regions: list[str | None] = []
    which = np.zeros(len(rows), np.int64)
    for place, row in enumerate(rows):
        count = Count(*row[:4])
        if count not in known:
            known[count] = len(known)
            regions.append(row[6])
        which[place] = known[count]
    numbers = _numbers([row[7:] for row in rows], 2 * len(WORK) + len(COEFFICIENTS))
    return EngineMinutes(
        counts=list(known),
        regions=regions,
        which=which,
        first_unix_ns=np.array([row[4] for row in rows], np.int64),
        last_unix_ns=np.array([row[5] for row in rows], np.int64),
        first={name: numbers[:, 2 * place] for place, name in enumerate(WORK)},
        last={name: numbers[:, 2 * place + 1] for place, name in enumerate(WORK)},
        coefficients={
            name: numbers[:, 2 * len(WORK) + place] for place, name in enumerate(COEFFICIENTS)
        },
    )


def gpu_minutes(engine: Engine, window: Window) -> GpuMinutes:
    """The GPUs of a window by the minute."""
    key = [GPUS.c.replica, GPUS.c.gpu]
    energy = GPUS.c.energy_j_total
    rows = _by_minute(
        engine,
        GPUS,
        window,
        key,
        [func.max(GPUS.c.model_name), func.min(energy), func.max(energy)],
    )
    known: dict[tuple[str, str], int] = {}
    models: list[str | None] = []
    which = np.zeros(len(rows), np.int64)
    for place, row in enumerate(rows):
        gpu = (row[0], row[1])
        if gpu not in known:
            known[gpu] = len(known)
            models.append(row[4])
        which[place] = known[gpu]
    numbers = _numbers([row[5:] for row in rows], 2)
    return GpuMinutes(
        gpus=list(known),
        models=models,
        which=which,
        first_unix_ns=np.array([row[2] for row in rows], np.int64),
        last_unix_ns=np.array([row[3] for row in rows], np.int64),
        first_j=numbers[:, 0],
        last_j=numbers[:, 1],
    )


def _by_minute(
    engine: Engine,
    table: Table,
    window: Window,
    key: Sequence[ColumnElement[Any]],
    told: Sequence[ColumnElement[Any]],
) -> list[Any]:
    at = table.c.at_unix_ns
    # Not a division: what a database makes of one is its own affair.
    minute = at - at % _MINUTE_NS
    statement = (
        select(*key, func.min(at), func.max(at), *told)
        .where(
            and_(at >= window.from_unix_ns - _EDGE_NS, at < window.to_unix_ns + _EDGE_NS),
        )
        .group_by(*key, minute)
        .order_by(func.min(at))
    )
    with reading(engine) as connection:
        return list(connection.execute(statement).all())


def _numbers(rows: Sequence[Sequence[Any]], columns: int) -> FloatArray:
    values = [[np.nan if each is None else float(each) for each in row] for row in rows]
    return np.array(values, np.float64).reshape(len(rows), columns)


@dataclass(frozen=True, slots=True)
class _Charged:
    window: Window
    cells: Cells
    apportioned: bool
    gone_ns: int
    """Up to when rows, and samples with them, were removed."""
    overflowed: int
    simulated: bool


def _charged(engine: Engine, window: Window, by: Sequence[str]) -> _Charged:
    first_s = window.from_unix_ns // SECOND_NS // HOUR_S * HOUR_S
    found = rollups(engine, window, by=by, step_s=HOUR_S, first_unix_s=first_s)
    if found is None:
        return _of_rows(engine, window, by)
    answered = found.plan.window
    sums = found.sums([*AMOUNTS, "e2e_s"])
    number = found.steps.number
    cells = _cells(by, list(found.groups), sums, sums.cells // number, sums.cells % number, found)
    longest = {
        int(hour): float(np.max(_facts(sums, "e2e_s")[sums.cells % number == step, 3]))
        for step in np.unique(sums.cells % number).tolist()
        for hour in [found.steps.first_unix_s + step * HOUR_S]
    }
    earlier_ns = max(0, answered.from_unix_ns - HOUR_S * SECOND_NS)
    before = rollups(engine, Window(earlier_ns, answered.from_unix_ns))
    if before is not None:
        longest[-1] = float(np.max(_facts(before.sums(["e2e_s"]), "e2e_s")[:, 3], initial=0.0))
    gone_ns = found.requests_gone_before_unix_ns()
    cells, whole = _apportioned(engine, answered, cells, longest, gone_ns)
    return _Charged(answered, cells, whole, gone_ns, found.overflowed(), simulated=found.simulated)


def _of_rows(engine: Engine, window: Window, by: Sequence[str]) -> _Charged:
    """Of a database that has no rollups yet."""
    answered = Window(
        window.from_unix_ns // _MINUTE_NS * _MINUTE_NS,
        -(-window.to_unix_ns // _MINUTE_NS) * _MINUTE_NS,
    )
    columns = list(dict.fromkeys(("received_unix_ns", *by, *AMOUNTS, "e2e_s")))
    table = request_table(engine, answered, columns=columns)
    hours = table["received_unix_ns"].to_numpy() // SECOND_NS // HOUR_S * HOUR_S
    told, which = _labelled([table[name].to_pylist() for name in by], table.num_rows)
    span = int(hours.max() - hours.min()) // HOUR_S + 1 if hours.size else 1
    first = int(hours.min()) if hours.size else 0
    sums = sums_of(table, which * span + (hours - first) // HOUR_S, [*AMOUNTS, "e2e_s"])
    cells = Cells(
        by=by,
        labels=told,
        group=sums.cells // span,
        hour_unix_s=first + sums.cells % span * HOUR_S,
        requests=sums.requests,
        sums={name: _facts(sums, name)[:, 1] for name in AMOUNTS},
        told={name: _facts(sums, name)[:, 0] for name in AMOUNTS},
    )
    longest = dict.fromkeys(np.unique(hours).tolist(), _LONGEST_S)
    cells, whole = _apportioned(engine, answered, cells, {**longest, -1: _LONGEST_S}, 0)
    return _Charged(answered, cells, whole, 0, 0, simulated=simulated_requests(engine, answered))


def _cells(
    by: Sequence[str],
    labels: list[tuple[str | None, ...]],
    sums: Sums,
    group: IntArray,
    step: IntArray,
    found: Rollups,
) -> Cells:
    return Cells(
        by=by,
        labels=labels,
        group=group,
        hour_unix_s=found.steps.first_unix_s + step * HOUR_S,
        requests=sums.requests,
        sums={name: _facts(sums, name)[:, 1] for name in AMOUNTS},
        told={name: _facts(sums, name)[:, 0] for name in AMOUNTS},
    )


def _facts(sums: Sums, name: str) -> FloatArray:
    """Of no cells there are none, and no quantities either."""
    return sums.facts.get(name, nothing(sums.cells.size))


def _labelled(
    columns: Sequence[Sequence[Any]], number: int
) -> tuple[list[tuple[str | None, ...]], IntArray]:
    known: dict[tuple[str | None, ...], int] = {}
    which = np.zeros(number, np.int64)
    for place, values in enumerate(zip(*columns, strict=True)):
        labels = tuple(str(each).lower() if isinstance(each, bool) else each for each in values)
        which[place] = known.setdefault(labels, len(known))
    return list(known), which


def _apportioned(
    engine: Engine,
    window: Window,
    cells: Cells,
    longest_s: Mapping[int, float],
    gone_before_ns: int,
) -> tuple[Cells, bool]:
    """Seconds moved over the edges of hours; whether all of them could be.

    `longest_s` has the longest request of each hour by its start, and at −1 that of the hour
    before the window.
    """
    start, end = window.from_unix_ns, window.to_unix_ns
    hour_ns = HOUR_S * SECOND_NS
    inner = range((start // hour_ns + 1) * hour_ns, end, hour_ns)
    labels = list(cells.labels)
    moved: list[tuple[int, int, float, float]] = []
    whole = True
    for edge in (start, *inner, end):
        hour = (edge - 1) // hour_ns * HOUR_S
        reach_s = min(longest_s.get(-1 if edge == start else hour, 0.0), _LONGEST_S)
        if not reach_s > 0:
            continue
        from_ns = max(0, edge - int((reach_s + 1) * SECOND_NS))
        if from_ns < gone_before_ns:
            whole = False
            continue
        for told, billed_s, wasted_s in _over(engine, Window(from_ns, edge), cells.by):
            if told not in labels:
                labels.append(told)
            group = labels.index(told)
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
            labels=labels,
            group=np.concatenate([cells.group, groups]),
            hour_unix_s=np.concatenate([cells.hour_unix_s, hours]),
            requests=np.concatenate([cells.requests, zeros.astype(np.int64)]),
            sums={name: np.concatenate([cells.sums[name], more[name]]) for name in AMOUNTS},
            told={name: np.concatenate([cells.told[name], zeros]) for name in AMOUNTS},
        ),
        whole,
    )


def _over(
    engine: Engine, before: Window, by: Sequence[str]
) -> list[tuple[tuple[str | None, ...], float, float]]:
    """Of the requests received before an edge and worked on after it: labels, and the seconds
    billed and wasted that lie beyond, by time."""
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
        told = tuple(
            str(row[name]).lower() if isinstance(row[name], bool) else row[name] for name in by
        )
        found.append((told, row["billed_s"] * share, (row["wasted_s"] or 0.0) * share))
    return found
