"""Write rows that any thread submits. `submit` returns a future that resolves after the commit.

Rows that arrive during a transaction are written together in the next transaction (group commit). A
submission is atomic. If the database cannot store a row, only the submission with that row fails.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from sqlalchemy import Engine

from store import dialects
from store.alerting.slo_marks import PROBE_SOURCE, mark_instants, mark_steps
from store.clock_corrections import apply_trace_clock_corrections
from store.errors import RowRefused, StoreBusy
from store.probes import LONGEST_S
from store.requests.in_flight import remove_ended, store_reports
from store.rollups.marks import REQUEST_ROLLUPS, SAMPLE_ROLLUPS, mark_minutes
from store.row_values import (
    Single,
    checked_values,
    gpu_values,
    in_flight_values,
    invalid_reason,
    request_values,
    sample_values,
    start_values,
    values_of,
)
from store.schema import (
    COLD_STARTS,
    GPUS,
    LOOKUPS,
    OPERATIONS,
    PROBES,
    REQUESTS,
    SAMPLES,
    STARTS,
)
from store.sender_clocks import apply_sender_clock_corrections
from telemetry.application_operations import ApplicationOperation
from telemetry.cache_lookups import CacheLookup
from telemetry.cold_starts import ColdStart
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.in_flight import InFlightRequest
from telemetry.probes import WAIT_PARTS, Probe
from telemetry.request_rows import RequestRows, Row
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart
from telemetry.store_errors import StoreError, StoreUnavailable
from telemetry.tasks import Task

__all__ = ["RowRefused", "StoreBusy", "StoreUnavailable", "Writer"]

CAPACITY_ROWS = 200_000
"""Maximum number of queued rows. The queued rows use at most a few hundred MB."""

GATHER_S = 0.05
"""Minimum time between the starts of two commits of a collector, so that messages share a commit. A
commit takes 0.4 ms of CPU time (SQLite, measured)."""
GATHERED_ROWS = 128
"""If at least this many rows wait, a commit starts immediately."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Submission:
    requests: RequestRows
    samples: Sequence[EngineSample]
    starts: Sequence[EngineStart]
    gpus: Sequence[GpuSample]
    in_flight: Sequence[InFlightRequest]
    probes: Sequence[Probe]
    operations: Sequence[ApplicationOperation]
    lookups: Sequence[CacheLookup]
    cold_starts: Sequence[ColdStart]
    leads_ns: Mapping[str, int]
    done: Future[None] = field(default_factory=Future)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.requests) + sum(map(len, self._others))

    @property
    def _others(self) -> tuple[Sequence[Single], ...]:
        return (
            *(self.samples, self.starts, self.gpus),
            *(self.in_flight, self.probes, self.operations, self.lookups),
            self.cold_starts,
        )

    def rows(self) -> Iterator[tuple[type, Row]]:
        for row in self.requests.rows:
            yield RequestTimeline, row
        for several in self._others:
            for each in several:
                yield type(each), values_of(each)


class Writer:
    """Writes rows to a database in a separate thread.

    Args:
        gather_s: minimum time between the starts of two commits with fewer than `GATHERED_ROWS`
            rows.
    """

    def __init__(
        self, engine: Engine, *, capacity_rows: int = CAPACITY_ROWS, gather_s: float = 0.0
    ) -> None:
        self._engine = engine
        self._gather_s = gather_s
        self._began = -math.inf
        self._capacity_rows = capacity_rows
        inserting = dialects.of(engine).inserting
        self._add_requests = inserting(engine, REQUESTS)
        self._add_samples = inserting(engine, SAMPLES)
        self._add_starts = inserting(engine, STARTS)
        self._add_gpus = inserting(engine, GPUS)
        self._add_probes = inserting(engine, PROBES)
        self._add_operations = inserting(engine, OPERATIONS)
        self._add_lookups = inserting(engine, LOOKUPS)
        self._add_cold_starts = inserting(engine, COLD_STARTS)
        self._waiting: deque[_Submission] = deque()
        self._waiting_rows = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()
        self.task = Task("store writer", vital=True, alive=self._thread.is_alive)

    def submit(
        self,
        requests: Sequence[RequestTimeline],
        samples: Sequence[EngineSample],
        starts: Sequence[EngineStart] = (),
        gpus: Sequence[GpuSample] = (),
        in_flight: Sequence[InFlightRequest] = (),
        probes: Sequence[Probe] = (),
        operations: Sequence[ApplicationOperation] = (),
        lookups: Sequence[CacheLookup] = (),
        cold_starts: Sequence[ColdStart] = (),
        *,
        leads_ns: Mapping[str, int] = MappingProxyType({}),
    ) -> Future[None]:
        """Queue rows for writing, without waiting for the disk.

        A row whose key is already stored is ignored. A newer report of a request in flight replaces
        the older report. `leads_ns`: see `NormalisedBatch.leads_ns`.

        Returns: a future that resolves after the commit. Its exception is `StoreUnavailable` if a
        retry may succeed, and `RowRefused` if a retry would fail again.

        Raises:
            StoreBusy: too many rows wait already.
            StoreUnavailable: the writer is closed.
        """
        submission = _Submission(
            *(RequestRows.of(requests), samples, starts, gpus),
            *(in_flight, probes, operations, lookups),
            *(cold_starts, leads_ns),
        )
        if not submission.size:
            submission.done.set_result(None)
            return submission.done
        with self._changed:
            if self._closing:
                raise StoreUnavailable("the writer is closed")
            # An empty queue accepts a submission of any size, so that even a large submission can
            # be written.
            if self._waiting and self._waiting_rows + submission.size > self._capacity_rows:
                raise StoreBusy(
                    f"{self._waiting_rows} rows wait to be written, and {submission.size} more"
                    f" would exceed {self._capacity_rows}"
                )
            first = not self._waiting
            self._waiting.append(submission)
            self._waiting_rows += submission.size
            if first or self._waiting_rows >= GATHERED_ROWS:
                self._changed.notify()
        return submission.done

    def close(self) -> None:
        """Write the waiting rows, then stop. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while group := self._take():
            try:
                self._write(group)
            except Exception as error:  # a defect
                self.task.failed(error)
                _log.exception("the writer failed on a group of %d submissions", len(group))
                for each in group:
                    if not each.done.done():
                        _settle(each, StoreUnavailable("the writer failed; see the log"))

    def _take(self) -> list[_Submission]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(
                lambda: self._waiting_rows >= GATHERED_ROWS or self._closing,
                max(0.0, self._began + self._gather_s - time.monotonic()),
            )
            self._began = time.monotonic()
            group = list(self._waiting)
            self._waiting.clear()
            self._waiting_rows = 0
        return group

    def _write(self, group: list[_Submission]) -> None:
        group = [each for each in group if each.done.set_running_or_notify_cancel()]
        failure = self._commit(group)
        if isinstance(failure, RowRefused) and len(group) > 1:
            for each in group:
                _settle(each, self._commit([each]))
        else:
            for each in group:
                _settle(each, failure)

    def _commit(self, group: list[_Submission]) -> StoreError | None:
        try:
            requests = [
                row for each in group if each.requests for row in request_values(each.requests)
            ]
            sent = [
                (SAMPLES, [list(map(sample_values, each.samples)) for each in group]),
                (STARTS, [list(map(start_values, each.starts)) for each in group]),
                (GPUS, [list(map(gpu_values, each.gpus)) for each in group]),
            ]
            in_flight = [in_flight_values(row) for each in group for row in each.in_flight]
            probes = [checked_values(row) for each in group for row in each.probes]
            operations = [checked_values(row) for each in group for row in each.operations]
            lookups = [checked_values(row) for each in group for row in each.lookups]
            cold_starts = [checked_values(row) for each in group for row in each.cold_starts]
            with self._engine.begin() as connection:
                requests, probes, operations, lookups, cold_starts = apply_trace_clock_corrections(
                    connection,
                    [
                        *((REQUESTS, requests), (PROBES, probes), (OPERATIONS, operations)),
                        *((LOOKUPS, lookups), (COLD_STARTS, cold_starts)),
                    ],
                )
                samples, starts, gpus = apply_sender_clock_corrections(
                    connection,
                    sent,
                    [each.leads_ns for each in group],
                )
                if requests:
                    self._add_requests(connection, requests)
                    mark_minutes(connection, REQUEST_ROLLUPS, requests)
                    mark_steps(connection, (each.requests for each in group))
                if in_flight:
                    store_reports(connection, in_flight)
                if requests:
                    remove_ended(connection, (each.requests for each in group))
                if samples:
                    self._add_samples(connection, samples)
                if starts:
                    self._add_starts(connection, starts)
                if gpus:
                    self._add_gpus(connection, gpus)
                if probes:
                    self._add_probes(connection, probes)
                    ends = (_end_unix_ns(row) for each in group for row in each.probes)
                    mark_instants(connection, ((each, PROBE_SOURCE) for each in ends))
                if operations:
                    self._add_operations(connection, operations)
                if lookups:
                    self._add_lookups(connection, lookups)
                if cold_starts:
                    self._add_cold_starts(connection, cold_starts)
                mark_minutes(connection, SAMPLE_ROLLUPS, samples, gpus)
        except Exception as error:  # the thread continues
            failure = _failure(self._engine, group, error)
            failure.__cause__ = error
            return failure
        self.task.succeeded(time.time())
        return None


def _end_unix_ns(probe: Probe) -> int:
    lasted_s = sum(getattr(probe, name) or 0.0 for name in WAIT_PARTS)
    return probe.at_unix_ns + round(min(lasted_s, LONGEST_S) * 1e9)


def _settle(submission: _Submission, failure: StoreError | None) -> None:
    if failure is None:
        submission.done.set_result(None)
    else:
        submission.done.set_exception(failure)


def _failure(engine: Engine, group: Sequence[_Submission], error: Exception) -> StoreError:
    dbapi, why = engine.dialect.loaded_dbapi, dialects.of(engine).reason(error)
    # the driver's error
    cause = getattr(error, "orig", None) or error
    if not isinstance(cause, dbapi.OperationalError):
        for each in group:
            for row_type, row in each.rows():
                if reason := invalid_reason(row_type, row):
                    return RowRefused(f"{row_type.__name__} refused: {reason}")
        if isinstance(cause, (dbapi.IntegrityError, dbapi.DataError)):
            return RowRefused(f"a row was refused: {why}")
    return StoreUnavailable(f"the database cannot be written: {why}")
