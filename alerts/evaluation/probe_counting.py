"""Count an objective's good and bad probes. A probe counts in the time bucket in which it ended."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from alerts import groups
from alerts.evaluation.probe_verdicts import columns_of_probes, judge_probes, lasted_s
from alerts.evaluation.table_verdicts import NOT_SELECTED, VERDICTS
from alerts.objectives import GoodProbes
from store.alerting.slo_counts import SloCount
from store.probes import ended_probes
from telemetry.window import Window

_NS = 10**9
_HOUR_S = 3600


def count_probes(
    engine: Engine, indicator: GoodProbes, from_s: int, to_s: int, bucket_s: int, lead_s: int
) -> list[SloCount]:
    """The counts of verdicts in each bucket, for the probes that ended in (from, to].

    If `indicator` describes one group, the result has all groups. Probes that were due more than
    `lead_s` before `from_s` are not counted.
    """
    part = indicator.part
    whole = part.whole if part else indicator
    columns = [*columns_of_probes(whole.where, whole.good), "at_unix_ns", *indicator.by]
    keys = [""]
    if part:
        keys = [groups.key(each) for each in (groups.other(indicator.by), *part.groups)]
    totals: dict[tuple[int, str], np.ndarray] = {}
    for window in _hours(max(0, from_s - lead_s), to_s):
        table = ended_probes(engine, window, list(dict.fromkeys(columns)), from_s * _NS)
        if not table.num_rows:
            continue
        codes = judge_probes(whole.where, whole.good, table)
        lasted_ns = np.rint(lasted_s(table).to_numpy() * _NS).astype(np.int64)
        ended_ns = table["at_unix_ns"].to_numpy() + lasted_ns
        selected = (codes != NOT_SELECTED) & (ended_ns > from_s * _NS) & (ended_ns <= to_s * _NS)
        until_s = -(-ended_ns[selected] // (bucket_s * _NS)) * bucket_s
        place = np.zeros(len(until_s), np.int64)
        if part:
            place = groups.positions_in(table.filter(pa.array(selected)), indicator.by, part.groups)
        for cell, number in _cells(until_s, place, codes[selected]):
            instant, at, code = cell
            counts = totals.setdefault((instant, keys[at]), np.zeros(len(VERDICTS), np.int64))
            counts[code] += number
    names = [str(verdict) for verdict in VERDICTS]
    return [
        SloCount(until, **dict(zip(names, each.tolist(), strict=True)), group=key)
        for (until, key), each in sorted(totals.items())
    ]


def _hours(from_s: int, to_s: int) -> Iterator[Window]:
    for start_s in range(from_s, to_s + 1, _HOUR_S):
        yield Window(start_s * _NS, min(start_s + _HOUR_S, to_s + 1) * _NS)


def _cells(
    until_s: np.ndarray, place: np.ndarray, codes: np.ndarray
) -> Iterator[tuple[tuple[int, int, int], int]]:
    cells, numbers = np.unique(
        np.column_stack([until_s, place, codes]).astype(np.int64), axis=0, return_counts=True
    )
    yield from zip(map(tuple, cells.tolist()), numbers.tolist(), strict=True)
