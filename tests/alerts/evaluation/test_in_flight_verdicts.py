import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from alerts.evaluation.count_cache import CountCache
from alerts.evaluation.counting import (
    EVALUATION_S,
    SETTLED_S,
    count_requests,
    read_tally,
    store_tally,
)
from alerts.evaluation.in_flight_verdicts import newly_bad, was_bad_in_flight
from alerts.evaluation.request_verdicts import RequestVerdict, judge, selects
from alerts.expression import parse
from alerts.fields import GOOD, WHERE
from alerts.objectives import Goodput
from store.alerting.slo_counts import mark_counts_incomplete
from store.alerting.slo_marks import read_marks
from store.writer import Writer
from telemetry.in_flight import InFlightRequest
from telemetry.request_rows import RequestRows
from telemetry.requests import Basis, Outcome, RequestTimeline, Source
from tests.alerts.in_flight import report_of

S = 10**9
START_S = 1_790_000_010
Row = Callable[..., RequestTimeline]


def goodput(good: str, where: str | None = None) -> Goodput:
    return Goodput(None if where is None else parse(where, WHERE), parse(good, GOOD))


FAST = goodput("ttft_s <= 0.5")


def report(age_s: float = 20.0, **about: Any) -> InFlightRequest:
    plain: dict[str, Any] = {
        "span_id": f"{1:016x}",
        "trace_id": f"{1:032x}",
        "received_unix_ns": START_S * S,
        "seen_unix_ns": START_S * S + round(age_s * S),
        "source": Source.INSTRUMENTATION,
        "streamed": True,
        "tenant": "acme",
    }
    return InFlightRequest(**{**plain, **about})


@pytest.mark.parametrize(
    ("good", "where", "about", "bad"),
    [
        ("ttft_s <= 0.5", None, {}, True),
        ("ttft_s <= 20", None, {}, False),
        ("ttft_s < 20", None, {}, True),
        ("ttft_s <= 0.5", None, {"ttft_s": 0.4}, False),
        ("ttft_s <= 0.5", None, {"ttft_s": 0.6}, True),
        ("ttft_s <= 0.5", None, {"streamed": None}, True),
        ("ttft_s <= 0.5 and tpot_s <= 0.05", None, {}, True),
        ("ttft_s <= 0.5 or tpot_s <= 0.05", None, {}, False),
        ("tpot_s <= 0.05", None, {"ttft_s": 0.1}, False),
        ("itl_max_s <= 1", None, {"ttft_s": 0.1}, False),
        ("e2e_s <= 10", None, {"ttft_s": 0.1}, True),
        ("e2e_s <= 30", None, {}, False),
        ("not (e2e_s > 10)", None, {}, True),
        # A lower bound cannot be missed while the request waits for its first byte.
        ("ttft_s > 30", None, {}, False),
        ("e2e_s >= 1", None, {}, False),
        ("queue_s <= 1", None, {}, False),
        # Every comparison with a value that is not yet measured is false, even `is unknown`.
        ("output_tokens >= 1", None, {}, False),
        ("tpot_s is unknown", None, {}, False),
        ("not (tpot_s is unknown)", None, {}, False),
        ('outcome == "stop"', None, {}, False),
        ('outcome != "abort"', None, {}, False),
        ("ttft_s <= 0.5", 'tenant == "acme"', {}, True),
        ("ttft_s <= 0.5", 'tenant == "globex"', {}, False),
        ("ttft_s <= 0.5", "tenant is unknown", {"tenant": None}, True),
        ("ttft_s <= 0.5", "streamed == true", {"streamed": None}, False),
        ("ttft_s <= 0.5", "prompt_tokens < 100", {"prompt_tokens": 50}, True),
        ("ttft_s <= 0.5", "engine == 0", {}, False),
        ("ttft_s <= 0.5", "engine is unknown", {}, False),
        ("ttft_s <= 0.5", "not (engine == 1)", {}, False),
    ],
)
def test_a_request_in_flight_is_bad_once_it_cannot_become_good(
    good: str, where: str | None, about: dict[str, Any], bad: bool
) -> None:
    assert newly_bad(goodput(good, where), [report(**about)]).tolist() == [bad]


seconds = st.floats(0.01, 60).map(lambda value: round(value, 2))


@given(
    good=st.sampled_from(
        [
            "ttft_s <= 7",
            "e2e_s <= 20 and ttft_s <= 7",
            "not (ttft_s > 7 or tpot_s > 0.05)",
            "ttft_s <= 7 or e2e_s <= 20",
            "ttft_s >= 2 and e2e_s < 30",
            "not (tpot_s is unknown) and ttft_s <= 7",
            'outcome == "stop" or ttft_s <= 7',
        ]
    ),
    where=st.sampled_from([None, "streamed == true", "engine == 0", "tenant is unknown"]),
    outcome=st.sampled_from([Outcome.STOP, Outcome.LENGTH, Outcome.ABORT, Outcome.ERROR]),
    e2e_s=seconds,
    ttft_ratio=st.one_of(st.none(), st.floats(0, 1)),
    streamed=st.booleans(),
    tokens=st.one_of(st.none(), st.integers(0, 50)),
    ages=st.lists(st.floats(0, 1), min_size=1, max_size=4).map(sorted),
)
def test_a_request_that_is_bad_in_flight_ends_bad(
    good: str,
    where: str | None,
    outcome: Outcome,
    e2e_s: float,
    ttft_ratio: float | None,
    streamed: bool,
    tokens: int | None,
    ages: list[float],
) -> None:
    """If a request is bad in flight, exactly one of its reports counts it as bad, and its row is
    bad too."""
    ttft_s = None if ttft_ratio is None else ttft_ratio * e2e_s
    if ttft_s is not None and not streamed:
        ttft_s = e2e_s
    if ttft_s is None and outcome not in (Outcome.ABORT, Outcome.ERROR):
        ttft_s = e2e_s
    if ttft_s is None:
        tokens = 0
    reported = [round(e2e_s * age, 9) for age in ages]
    row = RequestTimeline(
        trace_id=f"{1:032x}",
        span_id=f"{1:016x}",
        request_id=None,
        received_unix_ns=START_S * S,
        e2e_s=e2e_s,
        outcome=outcome,
        source=Source.INSTRUMENTATION,
        basis=Basis.HTTP,
        ttft_s=ttft_s,
        decode_s=None if ttft_s is None else e2e_s - ttft_s,
        output_tokens=tokens,
        streamed=streamed,
        engine=0,
        reported_in_flight_s=reported[-1],
    )
    objective = goodput(good, where)
    times = 0
    for before_s, age_s in zip([None, *reported], reported, strict=False):
        times += int(newly_bad(objective, [report_of(row, age_s, before_s)])[0])
    assert times == int(was_bad_in_flight(objective, RequestRows.of([row]))[0])
    if times:
        assert selects(objective.where, row)
        assert judge(objective.good, row) is RequestVerdict.BAD


def bad(engine: Engine, to_s: int, from_s: int = START_S) -> int:
    tally = read_tally(engine, FAST, from_s, to_s)
    return tally.history.counts(from_s, to_s).bad


def test_a_hung_request_counts_at_once_and_only_once(engine: Engine, request_row: Row) -> None:
    row = request_row(received_unix_ns=START_S * S, e2e_s=100.0, ttft_s=90.0)
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=[report_of(row, 6.0)]).result(10)
        assert bad(engine, START_S + 15) == 1
        writer.submit([], [], in_flight=[report_of(row, 86.0, 6.0)]).result(10)
        assert bad(engine, START_S + 75) == 0
        assert bad(engine, START_S + 90) == 1
        writer.submit([replace(row, reported_in_flight_s=86.0)], []).result(10)
        assert bad(engine, START_S + 90) == 0
        assert bad(engine, START_S + 200) == 1


def test_requests_of_a_server_that_died_stay_bad_as_of_their_last_report(
    engine: Engine, request_row: Row
) -> None:
    """A server that only lost its connection sends rows later, which replace the reports."""
    row = request_row(received_unix_ns=START_S * S, e2e_s=4000.0, ttft_s=0.2)
    lost = replace(row, span_id=f"{2:016x}")
    now_s = START_S + 2 * SETTLED_S
    with Writer(engine) as writer:
        late = replace(report_of(row, 20.0), ttft_s=None)
        writer.submit([], [], in_flight=[late, replace(late, span_id=lost.span_id)]).result(10)
        store_tally(engine, FAST, now_s)
        assert bad(engine, now_s) == 2
        assert bad(engine, START_S + 30, START_S + 15) == 2
        writer.submit([row], []).result(10)
        marks = read_marks(engine, 100)
        mark_counts_incomplete(
            engine, min(mark.until_unix_s for mark in marks) - EVALUATION_S, marks
        )
        store_tally(engine, FAST, now_s)
        assert bad(engine, now_s) == 1


def test_simulated_requests_in_flight_are_counted_separately(
    engine: Engine, request_row: Row
) -> None:
    rows = [request_row(source=source) for source in (Source.SIMULATOR, Source.INSTRUMENTATION)]
    reports = [replace(report_of(row, 20.0), ttft_s=None) for row in rows]
    with Writer(engine) as writer:
        writer.submit([], [], in_flight=reports).result(10)
    until_s = rows[0].received_unix_ns // S + 60
    tally = read_tally(engine, FAST, until_s - 120, until_s)
    assert tally.history.counts(until_s - 120, until_s).bad == 2
    assert tally.real.counts(until_s - 120, until_s).bad == 1


def test_cached_and_recomputed_counts_are_equal(engine: Engine, request_row: Row) -> None:
    chance = random.Random(5)
    fresh = CountCache()
    waiting: list[tuple[int, RequestTimeline | InFlightRequest]] = []
    fresh.begin(START_S)
    with Writer(engine) as writer:
        for turn in range(50):
            now_s = START_S + turn * EVALUATION_S
            for _ in range(4):
                e2e_s = chance.choice([6.0, 30.0, 120.0])
                row = request_row(
                    received_unix_ns=now_s * S + chance.randrange(S),
                    e2e_s=e2e_s,
                    ttft_s=chance.choice([0.1, e2e_s / 2]),
                    replica=chance.choice(["a", "b"]),
                )
                before_s, age_s = None, 5.0
                while age_s < e2e_s:
                    late_s = chance.choice([0, 0, 1, 20, 200])
                    sent = report_of(row, age_s, before_s)
                    waiting.append((sent.seen_unix_ns // S + late_s, sent))
                    before_s, age_s = age_s, age_s + 10.0
                if chance.random() < 0.8:  # otherwise the server died
                    waiting.append((now_s + int(e2e_s) + chance.choice([0, 40]), row))
            due = [each for at_s, each in waiting if at_s <= now_s]
            waiting = [each for each in waiting if each[0] > now_s]
            chance.shuffle(due)
            rows = [each for each in due if isinstance(each, RequestTimeline)]
            reports = [each for each in due if isinstance(each, InFlightRequest)]
            for some in (reports[::2], reports[1::2]):
                writer.submit([], [], in_flight=some).result(10)
            writer.submit(rows, []).result(10)
            marks = read_marks(engine, 1_000)
            fresh.add_marks(marks)
            if marks:
                mark_counts_incomplete(engine, min(each.until_unix_s for each in marks) - 15, marks)
            if turn % 2:
                continue
            asked = (engine, FAST, now_s - 40 * EVALUATION_S, now_s, EVALUATION_S)
            assert fresh.count(*asked) == count_requests(*asked)
