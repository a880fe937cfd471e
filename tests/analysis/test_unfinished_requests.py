from functools import cache

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from analysis.explain import EVIDENCE_COLUMNS, explain_question
from analysis.unfinished_requests import with_unfinished_requests
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Question, Span
from simulator.dataset import Dataset, run
from simulator.faults import SimulatedFault
from simulator.fleet_config import FleetConfig
from simulator.workload import Workload
from store.columns.evidence import EvidenceCache, evidence
from store.writer import Writer
from telemetry.in_flight import InFlightRequest
from telemetry.requests import RequestTimeline, Source
from telemetry.window import Window

BEGAN_S = 1_790_000_000
HANG_S, NOW_S = 220.0, 340.0
"""Seconds from the start to the hang, and to the question about its cause."""
S = 10**9


@cache
def hanging() -> Dataset:
    fault = SimulatedFault(cause="engine_hang", start_s=HANG_S, severity=2.0)
    return run(
        FleetConfig(
            replicas=1,
            workload=Workload(rate_per_s=4.0),
            duration_s=400.0,
            seed=9,
            faults=(fault,),
            started_unix_ns=BEGAN_S * S,
        )
    )


def report(row: RequestTimeline, seen_unix_ns: int) -> InFlightRequest:
    return InFlightRequest(
        span_id=row.span_id,
        trace_id=row.trace_id,
        received_unix_ns=row.received_unix_ns,
        seen_unix_ns=seen_unix_ns,
        source=Source.SIMULATOR,
        model=row.model,
        tenant=row.tenant,
        replica=row.replica,
        region=row.region,
        streamed=True,
        prompt_tokens=row.prompt_tokens,
    )


def explained(engine: Engine, in_flight: bool, metric: Metric = Metric.TTFT) -> Explanation:
    """Store the data that is known at `NOW_S`, and explain the two minutes before."""
    data = hanging()
    now_ns = round((BEGAN_S + NOW_S) * S)
    rows = [row for row in data.requests if row.received_unix_ns + row.e2e_s * 1e9 < now_ns]
    left = [
        report(row, now_ns - 2 * S)
        for row in data.requests
        if row.received_unix_ns < now_ns - 7 * S and row.received_unix_ns + row.e2e_s * S >= now_ns
    ]
    assert len(left) > 100
    samples = [sample for sample in data.samples if sample.at_unix_ns < now_ns]
    with Writer(engine) as writer:
        writer.submit(rows, samples, data.starts, in_flight=left if in_flight else []).result(30)
    window = Span(now_ns - 120 * S, now_ns)
    return explain_question(engine, Question(metric, window, Span(BEGAN_S * S, now_ns - 120 * S)))


def test_a_hang_is_named_while_it_lasts(engine: Engine) -> None:
    for metric in (Metric.TTFT, Metric.E2E):
        answer = explained(engine, in_flight=True, metric=metric)
        assert [cause.id for cause in answer.causes] == ["engine_hang"]
        assert answer.causes[0].where == {"replica": "sim-0"}
        assert (answer.now_s or 0) > 60


def test_cached_columns_get_the_same_rows(engine: Engine) -> None:
    """In the cached columns, labels are dictionary-encoded, and numbers have 32 bits."""
    explained(engine, in_flight=True)
    window = Window(BEGAN_S * S, round((BEGAN_S + NOW_S) * S))
    read = evidence(engine, window, EVIDENCE_COLUMNS, {})
    kept = EvidenceCache(engine, EVIDENCE_COLUMNS).read(window, {})
    more = [with_unfinished_requests(engine, each, [window]).requests for each in (read, kept)]
    assert more[0].num_rows == more[1].num_rows > read.requests.num_rows + 100
    for name in ("tenant", "received_unix_ns", "outcome", "prompt_tokens"):
        assert sorted(map(str, more[0][name].cast(pa.string()).to_pylist())) == sorted(
            map(str, more[1][name].cast(pa.string()).to_pylist())
        )
    assert more[0]["e2e_s"].to_pylist()[-100:] == pytest.approx(
        more[1]["e2e_s"].to_pylist()[-100:], rel=1e-6
    )


def test_unreported_requests_are_not_explained(engine: Engine) -> None:
    assert not explained(engine, in_flight=False).causes


def test_other_requests_in_flight_do_not_count(engine: Engine) -> None:
    """The engine takes steps, so its long requests will end."""
    data = hanging()
    until_ns = round((BEGAN_S + HANG_S) * S)
    rows = [row for row in data.requests if row.received_unix_ns + row.e2e_s * S < until_ns]
    left = [
        report(row, until_ns)
        for row in data.requests
        if row.received_unix_ns < until_ns <= row.received_unix_ns + row.e2e_s * S
    ]
    assert left
    samples = [sample for sample in data.samples if sample.at_unix_ns < until_ns]
    with Writer(engine) as writer:
        writer.submit(rows, samples, in_flight=left).result(30)
    window = Window(BEGAN_S * S, until_ns)
    found = evidence(engine, window, EVIDENCE_COLUMNS, {})
    assert with_unfinished_requests(engine, found, [window]) is found
