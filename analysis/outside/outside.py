"""Summarise the results of probes: how fast and reliably each endpoint answers from each region."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from analysis.outside.answer import EndpointResults, OutsideAnswer, OutsideQuestion
from analysis.outside.endpoints import COLUMNS, Results, endpoint_results_of
from store.probes import newest_probe_unix_ns, probe_label_values, probe_sample
from store.requests.network_time import server_times
from telemetry.window import Window

MAX_ENDPOINTS: Final = 60
"""Maximum number of places (endpoint, model and region) in an answer."""
STEPS: Final = 48
"""Approximate number of time steps in a window."""
WIDTHS_S: Final = (
    *(5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600),
    *(2 * 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400),
)
_NS: Final = 10**9


def answer_outside(engine: Engine, question: OutsideQuestion) -> OutsideAnswer:
    """The results of probes for each region, endpoint and model."""
    window = question.window
    table, scale, unanswered_scale = probe_sample(engine, window, COLUMNS, question.equals)
    step_s = _step_s(window)
    if not table.num_rows:
        return OutsideAnswer(window, (), 0, 0, 1.0, 1.0, step_s)
    order, starts = _grouped(table)
    chosen = _places_with_most_failures(table, order, starts)
    rows = np.concatenate([order[starts[each] : starts[each + 1]] for each in chosen])
    table = table.take(pa.array(rows))
    server_s = server_times(engine, window, table)
    results = Results.of(table, server_s, window, step_s, scale, unanswered_scale)
    ends = np.cumsum([starts[each + 1] - starts[each] for each in chosen])
    endpoints = [
        endpoint_results_of(results, int(end - (starts[each + 1] - starts[each])), int(end))
        for each, end in zip(chosen, ends.tolist(), strict=True)
    ]
    left_out = len(starts) - 1 - len(chosen)
    found = sorted(endpoints, key=_order)
    return OutsideAnswer(window, found, left_out, len(order), scale, unanswered_scale, step_s)


def newest_probe(engine: Engine, equals: Mapping[str, str | None]) -> int | None:
    """When the newest stored probe with these labels was due (unix ns), or None."""
    return newest_probe_unix_ns(engine, equals)


def probe_values(engine: Engine, window: Window, label: str) -> list[str]:
    """The values of a label of the probes in a window."""
    return probe_label_values(engine, window, label)


def _order(place: EndpointResults) -> tuple[str, str, str]:
    return place.endpoint, place.model or "", place.region or ""


def _step_s(window: Window) -> int:
    length_s = (window.to_unix_ns - window.from_unix_ns) / _NS
    return next((each for each in WIDTHS_S if length_s / each <= STEPS), WIDTHS_S[-1])


def _grouped(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers sorted by place, and the index at which each place starts. The last
    index is the number of rows."""
    key = np.zeros(table.num_rows, np.int64)
    for name in ("endpoint", "model", "region"):
        column = table[name].combine_chunks()
        codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        # Number the places again, so that `key` stays small: the next column multiplies it.
        key = np.unique(key * (len(column.dictionary) + 1) + codes + 1, return_inverse=True)[1]
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    return order, np.append(starts, len(order))


def _places_with_most_failures(
    table: pa.Table, order: np.ndarray, starts: np.ndarray
) -> Sequence[int]:
    """The `MAX_ENDPOINTS` places with the most failures, and then the most probes."""
    number = len(starts) - 1
    if number <= MAX_ENDPOINTS:
        return range(number)
    failed = np.add.reduceat(Results.failed_of(table)[order], starts[:-1])
    ranked = np.lexsort((-np.diff(starts), -failed))
    found: list[int] = np.sort(ranked[:MAX_ENDPOINTS]).tolist()
    return found
