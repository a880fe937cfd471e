"""Explain a latency from the database: read the evidence, choose the baseline, run the
diagnosis."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.access.evidence import explained_where, thresholds_for
from analysis.baseline import Baseline, usual_baseline, within
from analysis.outside.network_evidence import network_times, with_network_times
from analysis.thresholds import thresholds
from analysis.unfinished_requests import with_unfinished_requests
from diagnosis.explain import explain
from diagnosis.explanation import Explanation, ExplanationVerdict
from diagnosis.inputs.arrow import (
    ENGINE_COLUMNS,
    GPU_COLUMNS,
    RANGE,
    REQUEST_COLUMNS,
    requests_of,
    servers_of,
)
from diagnosis.inputs.requests import LABELS
from diagnosis.question import Metric, Question, Span
from store.access.restricted import with_masked_rows
from store.alerting.incidents import read_overlapping
from store.columns.evidence import EvidenceColumns, EvidenceRows, evidence
from telemetry.incidents import IncidentRow
from telemetry.starts import EngineStart
from telemetry.window import Window

EVIDENCE_COLUMNS: Final = EvidenceColumns(REQUEST_COLUMNS, ENGINE_COLUMNS, GPU_COLUMNS)

_LOOKBACK_NS = 7 * 86_400 * 10**9
"""Maximum time from the start of a baseline to the start of the window. Rows have the same default
retention."""


@dataclass(frozen=True, slots=True)
class ExplainAnswer:
    """An explanation, the incidents that overlap the window, and how the baseline was chosen."""

    explanation: Explanation
    incidents: tuple[IncidentRow, ...] = ()
    before: IncidentRow | None = None
    """The incident that begins at the end of the baseline."""
    just_before: bool = False
    """Whether the baseline ends at the start of the window."""


def explain_window(
    engine: Engine,
    metric: Metric,
    window: Span,
    where: Mapping[str, str | None],
    objectives: Sequence[Objective],
    baseline: Span | None = None,
) -> ExplainAnswer:
    """Explain why a latency in a window is high.

    Args:
        where: labels that select the requests to explain. The evidence comes from all requests.
        objectives: the active objectives. They determine whether there is an incident.
        baseline: the range to compare with, or None for the latest range before the window's
            incidents.
    """
    where, objectives = explained_where(engine, where), thresholds_for(engine, objectives)
    known = known_incidents(engine, window)
    against = Baseline(baseline) if baseline is not None else usual_baseline(window, known)
    explanation = explain_question(
        engine, Question(metric, window, against.span, where), objectives
    )
    if against.before is not None and explanation.verdict is ExplanationVerdict.INSUFFICIENT_DATA:
        # The data before the incident is missing, so try the range just before the window.
        nearer = explain_question(
            engine, replace(explanation.question, baseline=window.before), objectives
        )
        if nearer.verdict is not ExplanationVerdict.INSUFFICIENT_DATA:
            explanation, against = nearer, Baseline(window.before)
    return ExplainAnswer(
        explanation,
        within(window, known),
        against.before,
        explanation.question.baseline == window.before,
    )


def known_incidents(engine: Engine, window: Span) -> list[IncidentRow]:
    """Return the incidents that overlap a window or any possible baseline of the window."""
    from_ns = max(0, window.from_unix_ns - _LOOKBACK_NS)
    return read_overlapping(engine, from_ns // 10**9, -(-window.to_unix_ns // 10**9))


def explain_question(
    engine: Engine,
    question: Question,
    objectives: Sequence[Objective] = (),
    replicas: Collection[str] | None = None,
) -> Explanation:
    """Read the data for a question from the store, and explain it.

    Args:
        replicas: the servers whose requests and samples are used as evidence, or None for all.

    Raises:
        NotAllowed: the question is about requests that the reader may not see.
    """
    question = replace(question, where=explained_where(engine, question.where))
    objectives = thresholds_for(engine, objectives)
    whole = with_masked_rows(engine)
    extra_labels = [label for label in question.where if label not in LABELS]
    columns = EVIDENCE_COLUMNS._replace(
        requests=list(dict.fromkeys([*REQUEST_COLUMNS, *extra_labels]))
    )
    windows = windows_of(question)
    found = joined_evidence([evidence(whole, each, columns, {}) for each in windows])
    found = with_unfinished_requests(whole, found, windows)
    if replicas is not None:
        found = _rows_of_replicas(found, replicas)
    servers = servers_of(found.engines, found.gpus, found.starts, found.cold_starts)
    explanation = explain(
        requests_of(found.requests, extra_labels),
        servers,
        question,
        thresholds(objectives, question.metric),
    )
    return with_network_times(explanation, network_times(engine, question))


def windows_of(question: Question) -> list[Window]:
    """The time ranges to read.

    If baseline and window are close together, one range contains both. If they are far apart, each
    is a separate range.
    """
    whole, parts = question.whole, [question.baseline, question.window]
    if whole.seconds <= 2 * sum(each.seconds for each in parts):
        parts = [whole]
    ordered = sorted(parts, key=lambda each: each.from_unix_ns)
    return [Window(each.from_unix_ns, each.to_unix_ns) for each in ordered]


def joined_evidence(found: Sequence[EvidenceRows]) -> EvidenceRows:
    """Concatenate the evidence of several time ranges, in order of time. The column `RANGE`
    contains the index of each sample's range."""
    if len(found) == 1:
        return found[0]

    def joined(tables: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables, promote_options="default")

    def numbered(tables: Sequence[pa.Table]) -> list[pa.Table]:
        return [
            each.append_column(RANGE, pa.repeat(number, each.num_rows))
            for number, each in enumerate(tables)
        ]

    return EvidenceRows(
        requests=joined([each.requests for each in found]),
        engines=joined(numbered([each.engines for each in found])),
        gpus=joined(numbered([each.gpus for each in found])),
        starts=list({_identity(start): start for each in found for start in each.starts}.values()),
        cold_starts=list(
            {each.span_id: each for part in found for each in part.cold_starts}.values()
        ),
        samples_every_s=max((each.samples_every_s or 0 for each in found), default=0) or None,
    )


def _rows_of_replicas(found: EvidenceRows, replicas: Collection[str]) -> EvidenceRows:
    wanted = pa.array(sorted(replicas), pa.string())

    def table(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.is_in(rows["replica"].cast(pa.string()), value_set=wanted))

    return replace(
        found,
        requests=table(found.requests),
        engines=table(found.engines),
        gpus=table(found.gpus),
        starts=[start for start in found.starts if start.replica in replicas],
        cold_starts=[start for start in found.cold_starts if start.replica in replicas],
    )


def _identity(start: EngineStart) -> tuple[str, int, int, int]:
    return start.replica, start.engine, start.process, start.at_unix_ns
