"""Compare the requests before and after a change, and add independent evidence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlalchemy import Engine

from alerts.evaluation.table_verdicts import columns_of
from alerts.objectives import Goodput
from analysis.access.evidence import require_all_tenants
from analysis.compare.attainment import AttainmentParts, Chosen, attainment_of
from analysis.compare.decision import QUANTILES, CompareDecision, Criteria, decide, floor_of
from analysis.compare.process_effect import ProcessEffect
from analysis.compare.processes import ComparedProcesses, effect_of, read_processes
from analysis.compare.question import (
    PROCESS_LABELS,
    VERSION,
    CompareError,
    CompareQuestion,
    CompareSide,
)
from analysis.compare.sides import COLUMNS, SideRequests, group_numbers, renamed, requests_of
from analysis.compare.step_coefficients import Coefficients, coefficients_of, work_intervals_of
from analysis.compare.total_change import TotalChange, total_change
from analysis.compare.versions import with_versions
from analysis.counted_requests import CountedAs, counted_as, counting_notes
from analysis.recorded_traffic import LEAD_S
from analysis.stored_predictions import Expected, deployed, expected, replicas_of
from analysis.what_if import matching
from diagnosis.inputs.arrow import samples_of
from replay.arrivals import BoolArray
from store.joined.prefill_engines import known_roles
from store.joined.user_requests import is_prefill_half
from store.predictions import predictions
from store.queries import newest_unix_ns, request_count, request_table, sample_table
from telemetry.requests import Source
from telemetry.window import Window

MAX_READ = 300_000
"""Maximum number of requests to read on each side. Reading them takes about a second."""
IDENTITY = ("trace_id", "span_id")
NOT_REPLAYED = "not replayed"
DECODE_ROWS = (
    "Prefill and decode are on different servers: this comparison counts each request once, with"
    " the times of its decode server. TTFT and E2E lack the prefill. Select a prefill server by its"
    " label replica to compare its prefills."
)
_NS = 10**9


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """The verdict with its numbers, and the number of compared requests on each side."""

    question: CompareQuestion
    decision: CompareDecision
    requests_before: int
    requests_after: int
    restart: ProcessEffect | None
    """The effect of a restart, or None if the same processes served both sides."""


@dataclass(frozen=True, slots=True)
class CompareAnswer(DecisionResult):
    """The decision on a question, with independent evidence that the server changed."""

    coefficients: Coefficients | None
    total: TotalChange
    objectives: Sequence[AttainmentParts]
    notes: Sequence[str]
    simulated: bool
    expected: Expected | None = None
    """The effect that `what-if` predicted for this change, or None."""


def answer_compare(engine: Engine, question: CompareQuestion, replay: bool = True) -> CompareAnswer:
    """Compare the requests before and after a change.

    Args:
        replay: whether to compute the total change by replay, which takes some seconds.

    Raises:
        CompareError, NotAllowed: as raised by `read_sides`.
    """
    sides, notes = read_sides(engine, question)
    found = decided(sides, question, read_processes(engine, question, sides))
    objectives = [attainment_of(each, *sides) for each in question.objectives]
    total = total_change(engine, question) if replay else TotalChange(None, NOT_REPLAYED)
    return CompareAnswer(
        question=question,
        decision=found.decision,
        requests_before=found.requests_before,
        requests_after=found.requests_after,
        restart=found.restart,
        coefficients=_coefficients(engine, question, sides),
        total=total,
        objectives=[each for each in objectives if each is not None],
        notes=notes if found.restart is None else [*notes, found.restart.sentence],
        simulated=_simulated(*(each.requests for each in sides)),
        expected=_expected(engine, question, sides, found.decision),
    )


def read_sides(engine: Engine, question: CompareQuestion) -> tuple[list[Chosen], list[str]]:
    """Read the requests before and after the change.

    Returns:
        Both sides, and notes about requests that are left out.

    Raises:
        CompareError: a side has too many requests, or both sides have the same request.
        NotAllowed: the reader may not see the requests of all tenants.
    """
    require_all_tenants(engine, "a comparison")
    before, after = (_read(engine, side, question) for side in (question.before, question.after))
    chosen = [
        _rows_of_side(each, side)
        for each, side in zip((before, after), (question.before, question.after), strict=True)
    ]
    ignored = renamed([*zip((before.table, after.table), chosen, strict=True)])
    groups = group_numbers([before.table, after.table], without=[*question.labels, *ignored])
    if question.overlap:
        _refuse_common(before, after, chosen)
    halves = _without_prefill_halves(engine, question, [before, after], chosen)
    ended, note = _settled(engine, question, [before, after], chosen)
    for each, rows in zip((before, after), chosen, strict=True):
        rows &= each.received_unix_ns < ended
    notes = [note] if note and question.after.window.to_unix_ns > ended else []
    notes += halves
    sides = [
        Chosen(each, numbers, rows)
        for each, numbers, rows in zip((before, after), groups, chosen, strict=True)
    ]
    return sides, notes


def decided(
    sides: Sequence[Chosen], question: CompareQuestion, processes: ComparedProcesses | None
) -> DecisionResult:
    """Decide whether the latency of a question is worse after the change. Pure."""
    criteria = Criteria(
        QUANTILES[question.quantile], question.margin, question.looks, floor_of(question.metric)
    )
    before, after = (
        each.requests.observed(question.metric, each.groups, each.rows)[0] for each in sides
    )
    restart = None
    if processes is not None:
        restart = effect_of(processes, question, sides[0], criteria)
        criteria = replace(criteria, restart_half=restart.log_half)
    sizes = before.at_s.size, after.at_s.size
    return DecisionResult(question, decide(before, after, criteria), *sizes, restart)


def _read(engine: Engine, side: CompareSide, question: CompareQuestion) -> SideRequests:
    lead = _with_lead(side.window)
    if number := too_many(engine, side.window, MAX_READ):
        raise CompareError(
            f"{number:,} requests in one range; allowed: at most {MAX_READ:,}. Choose a shorter"
            " range"
        )
    columns = [*COLUMNS, *question.columns, *(IDENTITY if question.overlap else ())]
    for each in question.objectives:
        if isinstance(each.indicator, Goodput):
            columns += columns_of(each.indicator.where, each.indicator.good)
    table = request_table(engine, lead, columns=list(dict.fromkeys(columns)))
    if VERSION in question.labels:
        table = with_versions(engine, table, lead)
    return requests_of(table)


def too_many(engine: Engine, window: Window, most: int) -> int | None:
    """Return the number of requests that a comparison would read, or None if there are at most
    `most`."""
    number = request_count(engine, _with_lead(window))
    return number if number > most else None


def _with_lead(window: Window) -> Window:
    return Window(max(0, window.from_unix_ns - LEAD_S * _NS), window.to_unix_ns)


def _rows_of_side(of: SideRequests, side: CompareSide) -> BoolArray:
    return np.asarray(
        (of.received_unix_ns >= side.window.from_unix_ns) & matching(of.table, side.equals)
    )


def _refuse_common(before: SideRequests, after: SideRequests, chosen: Sequence[BoolArray]) -> None:
    sides = []
    for each, rows in zip((before, after), chosen, strict=True):
        table = each.table.select(list(IDENTITY)).filter(pa.array(rows))
        sides.append(set(zip(*(column.to_pylist() for column in table.columns), strict=True)))
    if common := len(sides[0] & sides[1]):
        raise CompareError(
            f"{common:,} requests belong to both sides; choose labels that exclude each other"
        )


def _without_prefill_halves(
    engine: Engine,
    question: CompareQuestion,
    sides: Sequence[SideRequests],
    chosen: Sequence[BoolArray],
) -> list[str]:
    """Deselect the prefill rows of joined requests, so that a request counts once.

    Returns: a note if servers do only prefills.
    """
    notes = []
    for side, each, rows in zip((question.before, question.after), sides, chosen, strict=True):
        kind = counted_as(engine, side.window, question.labels)
        if kind is CountedAs.JOINED:
            rows &= ~is_prefill_half(each.table, known_roles(engine, side.window.to_unix_ns))
            notes.append(DECODE_ROWS)
        else:
            notes += counting_notes(kind)
    return list(dict.fromkeys(notes))


def _settled(
    engine: Engine,
    question: CompareQuestion,
    sides: Sequence[SideRequests],
    chosen: Sequence[BoolArray],
) -> tuple[int, str | None]:
    """Return the end of the complete data in unix nanoseconds, and a note if data is left out.

    A request is stored when it ends. So of the requests that arrived last, the slow ones are not
    stored yet. The time to leave out is the P99 of the request durations, taken from the side on
    which it is longer.
    """
    newest = newest_unix_ns(engine)
    lasted_s = [
        (each.ended_s - each.instants.received_s)[rows]
        for each, rows in zip(sides, chosen, strict=True)
        if rows.any()
    ]
    if newest is None or not lasted_s:
        return question.after.window.to_unix_ns, None
    p99_s = max(float(np.quantile(each, 0.99)) for each in lasted_s)
    return newest - int(p99_s * _NS), (
        f"Requests of the last {p99_s:.1f} s of the data are left out, because the slow ones have"
        " not ended yet."
    )


def _coefficients(
    engine: Engine, question: CompareQuestion, sides: Sequence[Chosen]
) -> Coefficients | None:
    work_intervals = []
    for side, of in zip(sides, (question.before, question.after), strict=True):
        table = sample_table(engine, of.window)
        if VERSION in of.equals:
            table = with_versions(engine, table, of.window, "at_unix_ns")
        samples = samples_of(table)
        if not len(samples):
            return None
        names = set(side.requests.table["replica"].filter(pa.array(side.rows)).to_pylist())
        # A replica may have restarted within the range, with another configuration or version.
        labels = {name: of.equals[name] for name in PROCESS_LABELS if name in of.equals}
        mine = samples.replica.is_any(names) & matching(table, labels)
        work_intervals.append(
            work_intervals_of(samples, mine, of.window.from_unix_ns, of.window.to_unix_ns)
        )
    return coefficients_of(*work_intervals)


def _expected(
    engine: Engine, question: CompareQuestion, sides: Sequence[Chosen], found: CompareDecision
) -> Expected | None:
    """The stored what-if prediction of the change, and the measured change. Return None if no
    prediction is stored, or if the ranges overlap. Also return None if labels select the requests,
    because predictions are for all requests of a range."""
    known = [] if question.overlap or question.labels else predictions(engine)
    if not known:
        return None
    served = [
        replicas_of(each.requests.table["replica"].filter(pa.array(each.rows))) for each in sides
    ]
    deploy = deployed(engine, question.before.window, question.after.window, served)
    return expected(known, deploy, question.metric, question.quantile, found.parts)


def _simulated(*sides: SideRequests) -> bool:
    return any(
        Source.SIMULATOR.value in each.table["source"].unique().to_pylist() for each in sides
    )
