"""Refuse rows that are older than the retention, with an explanation for the sender.

Rollups that include such old rows are not updated any more, so they would not contain these rows
(docs/decisions/021).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from telemetry.application_operations import Operation
from telemetry.request_rows import PLACE, RequestRows

MINUTE_NS: Final = 60 * 10**9

_received: Callable[[Any], int] = itemgetter(PLACE["received_unix_ns"])
_seen: Callable[[Any], int] = attrgetter("seen_unix_ns")
_at: Callable[[Any], int] = attrgetter("at_unix_ns")
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """Refuses rows that are too old. Engine starts are not refused, because their retention is
    longer.

    Attributes:
        keep_ns: the retention of rows. If None, rows of any age are accepted.
        deletable_unix_ns: returns the time from which the age is measured. If None, the age is
            measured from the arrival of the message.
    """

    keep_ns: int | None
    deletable_unix_ns: Callable[[], int] | None = None

    def __call__(self, batch: NormalisedBatch, arrived_unix_ns: int) -> None:
        """Remove rows that are too old, and count their items as refused."""
        if self.keep_ns is None:
            return
        present = arrived_unix_ns if self.deletable_unix_ns is None else self.deletable_unix_ns()
        horizon = -(-(present - self.keep_ns) // MINUTE_NS) * MINUTE_NS
        oldest = horizon
        for rows, instant in (
            (batch.requests.rows, _received),
            (batch.samples, _at),
            (batch.gpus, _at),
            (batch.in_flight, _seen),
            (batch.probes, _at),
            (batch.operations, _at),
            (batch.lookups, _at),
            (batch.cold_starts, _at),
        ):
            if rows:
                oldest = min(oldest, min(map(instant, rows)))
        if oldest >= horizon:
            return
        rows = batch.requests.rows
        rows, _ = _rows_within_age(batch, rows, [1] * len(rows), _received, horizon)
        batch.requests = RequestRows(rows)
        batch.samples, batch.sample_points = _rows_within_age(
            batch, batch.samples, batch.sample_points, _at, horizon
        )
        batch.gpus, batch.gpu_points = _rows_within_age(
            batch, batch.gpus, batch.gpu_points, _at, horizon
        )
        reports = batch.in_flight
        batch.in_flight, _ = _rows_within_age(batch, reports, [1] * len(reports), _seen, horizon)
        probes = batch.probes
        batch.probes, _ = _rows_within_age(batch, probes, [1] * len(probes), _at, horizon)
        # A client's call is also a request, and counts as a request.
        items = [0 if each.operation is Operation.CALL else 1 for each in batch.operations]
        batch.operations, _ = _rows_within_age(batch, batch.operations, items, _at, horizon)
        batch.lookups, batch.lookup_spans = _rows_within_age(
            batch, batch.lookups, batch.lookup_spans, _at, horizon
        )
        starts = batch.cold_starts
        batch.cold_starts, _ = _rows_within_age(batch, starts, [1] * len(starts), _at, horizon)
        batch.why[Refusal.TOO_OLD] = (
            f"up to {_length(arrived_unix_ns - oldest)} old;"
            f" rows older than {_length(self.keep_ns)} are not kept"
        )


def _rows_within_age(
    batch: NormalisedBatch,
    rows: Sequence[_Row],
    items: Sequence[int],
    instant: Callable[[_Row], int],
    horizon_unix_ns: int,
) -> tuple[list[_Row], list[int]]:
    """Refuse rows before `horizon_unix_ns`.

    Return the remaining rows, and the number of items for each remaining row.
    """
    kept, kept_items = [], []
    for row, number in zip(rows, items, strict=True):
        if instant(row) >= horizon_unix_ns:
            kept.append(row)
            kept_items.append(number)
        else:
            batch.accepted -= number
            batch.refused[Refusal.TOO_OLD] += number
    return kept, kept_items


def _length(ns: int) -> str:
    for unit, unit_ns in (("days", 86_400 * 10**9), ("h", 3_600 * 10**9), ("min", MINUTE_NS)):
        if ns >= 2 * unit_ns:
            return f"{ns / unit_ns:.4g} {unit}"
    return f"{ns / 1e9:.4g} s"
