import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, select, true

from store import dialects
from store.columns.request_columns import request_columns
from store.connections import writing
from store.database import open_database
from store.queries import request_table
from store.retention import delete_older, delete_older_rollups
from store.rollups import queries, request_rollups
from store.rollups.bucket_builder import build_marked
from store.rollups.buckets import merged, nearest_ranks
from store.rollups.label_sets import LabelSets
from store.rollups.marks import begin, marked, pending
from store.rollups.queries import Rollups, rollups
from store.rollups.request_rollups import COLUMNS, buckets_of
from store.rollups.storage import StoredSketches, load_buckets, load_sketches
from store.rollups.tables import HOUR_S, MARKS, MINUTE_S, ROLLUPS
from store.simulation_removal import delete_simulation
from telemetry.quantiles import quantile
from telemetry.requests import LATENCIES, Outcome, RequestTimeline, Source
from telemetry.window import Window
from tests.store.conftest import put

S = 1_000_000_000
START_S = 1_763_632_800
LATER_S = START_S + 30 * 86_400
EVER = Window(START_S * S, (START_S + 3 * 3_600) * S)
SHARES = (0.5, 0.9, 0.99, 0.999)

Requests = Callable[..., RequestTimeline]
Write = Callable[..., None]


def fleet(request_row: Requests, number: int, hours: float = 0.7) -> list[RequestTimeline]:
    """Requests in ten minutes, spread over some hours, with some unknown labels."""
    drawn = random.Random(11)
    minutes = [round(tenth * hours * 6) for tenth in range(10)]
    rows = []
    for i in range(number):
        latency = drawn.lognormvariate(-2, 1)
        known = drawn.random() < 0.9
        rows.append(
            request_row(
                i,
                received_unix_ns=(START_S + 60 * drawn.choice(minutes)) * S
                + drawn.randrange(60 * S),
                e2e_s=latency * 10,
                ttft_s=latency if known else None,
                queue_s=0.0 if drawn.random() < 0.2 else latency / 3,
                decode_s=latency * 8 if known else None,
                output_tokens=drawn.randint(1, 300) if known else None,
                itl_max_s=latency / 10,
                model=drawn.choice(["a", "b", None]),
                tenant=drawn.choice(["x", "y", "z", None]),
                outcome=drawn.choice([Outcome.STOP, Outcome.LENGTH, Outcome.ABORT]),
                streamed=drawn.choice([True, False, None]),
            )
        )
    return rows


def asked(engine: Engine, window: Window = EVER, **about: Any) -> Rollups:
    found = rollups(engine, window, **about)
    assert found is not None
    return found


def counts(engine: Engine, window: Window = EVER, **about: Any) -> dict[tuple[Any, ...], int]:
    question = asked(engine, window, **about)
    sums = question.sums(())
    steps = question.steps.number
    return {
        (*question.groups[cell // steps], cell % steps): number
        for cell, number in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True)
    }


def same_as_rows(engine: Engine, window: Window = EVER) -> None:
    table = request_table(engine, window)
    for by, step_s in (((), None), (("model",), 60), (("tenant", "outcome"), 3600)):
        question = asked(engine, window, by=by, step_s=step_s)
        sums = question.sums(("e2e_s", "output_tokens"))
        steps = question.steps
        at = table["received_unix_ns"].to_numpy() // (S * 60) * 60
        step = (at - steps.first_unix_s) // steps.width_s
        groups = list(zip(*(table[label].to_pylist() for label in by), strict=True))
        groups = groups or [()] * table.num_rows
        keys = list(zip(groups, step.tolist(), strict=True))
        expected = Counter(keys)
        values = {
            (question.groups[cell // steps.number], cell % steps.number): number
            for cell, number in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True)
        }
        assert values == expected
        for latency in LATENCIES:
            exact = defaultdict(list)
            for key, value in zip(keys, table[latency].to_pylist(), strict=True):
                if value is not None:
                    exact[key].append(value)
            found = question.quantiles(latency, nearest_ranks(SHARES))
            for cell, number in enumerate(found.number.tolist()):
                of = np.array(exact[question.groups[cell // steps.number], cell % steps.number])
                assert number == of.size
                wanted = [quantile(of, share) if of.size else None for share in SHARES]
                np.testing.assert_allclose(found.value_s[cell], np.array(wanted, float), rtol=0.01)


def test_rollups_equal_the_rows(engine: Engine, write: Write, request_row: Requests) -> None:
    begin(engine)
    write(*fleet(request_row, 200, hours=1.3))
    same_as_rows(engine)
    assert build_marked(engine, LATER_S).remaining == 0
    assert pending(engine, MINUTE_S, 0, LATER_S) == pending(engine, HOUR_S, 0, LATER_S) == []
    same_as_rows(engine)
    found = asked(engine)
    assert found.plan.requests == []
    assert found.plan.hours
    # PostgreSQL's Decimals would break the pages' calculations
    assert type(found.number()) is int


def test_a_busy_minute_is_rolled_up_in_parts(
    sqlite: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 0

    def noted(table: pa.Table, *rest: Any) -> Any:
        nonlocal largest
        largest = max(largest, table.num_rows)
        return buckets_of(table, *rest)

    monkeypatch.setattr(request_rollups, "AT_ONCE", 20)
    monkeypatch.setattr(request_rollups, "buckets_of", noted)
    put(sqlite, *fleet(request_row, 300, hours=0.1))
    assert build_marked(sqlite, LATER_S).remaining == 0
    assert 0 < largest < 60
    same_as_rows(sqlite)


def test_an_hour_is_built_from_few_reads_of_its_minutes(
    sqlite: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []

    def noted(connection: Any, width_s: int, start: int, end: int) -> Any:
        read.append(((start - START_S) // 60, (end - START_S) // 60))
        return load_buckets(connection, width_s, start, end)

    monkeypatch.setattr(request_rollups, "load_buckets", noted)
    minutes = [0, 1, 7, 20, 21, 30, 59]
    put(sqlite, *(request_row(n, received_unix_ns=(START_S + n * 60) * S) for n in minutes))
    build_marked(sqlite, LATER_S)
    assert read == [(0, 22), (30, 60)]
    same_as_rows(sqlite)


def test_the_sketches_of_a_long_range_are_read_in_parts(
    sqlite: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noted(connection: Any, width_s: int, start: int, end: int, *about: Any) -> StoredSketches:
        read.append((end - start) // width_s)
        return load_sketches(connection, width_s, start, end, *about)

    begin(sqlite)
    put(sqlite, *fleet(request_row, 200, hours=1.3))
    assert build_marked(sqlite, LATER_S).remaining == 0
    monkeypatch.setattr(queries, "SKETCHES_AT_ONCE", 7)
    monkeypatch.setattr(queries, "load_sketches", noted)
    same_as_rows(sqlite)
    assert max(read) == 7


def test_older_rows_are_rolled_up(engine: Engine, write: Write, request_row: Requests) -> None:
    write(*fleet(request_row, 60))
    with writing(engine) as connection:
        dialects.of(engine).remove(connection, MARKS, true())
    assert rollups(engine, EVER) is None  # there are no rollups yet
    first = build_marked(engine, LATER_S, most=5)
    assert first.built == 5
    assert first.remaining > 0
    same_as_rows(engine)
    while build_marked(engine, LATER_S, most=50).remaining:
        pass
    same_as_rows(engine)


def test_repeats_and_late_rows_count(engine: Engine, write: Write, request_row: Requests) -> None:
    write(*(request_row(i, received_unix_ns=START_S * S) for i in range(10)))
    build_marked(engine, LATER_S)
    write(*(request_row(i, received_unix_ns=START_S * S) for i in range(10)))
    assert counts(engine) == {(0,): 10}
    build_marked(engine, LATER_S)
    assert counts(engine) == {(0,): 10}
    write(request_row(11, received_unix_ns=(START_S + 5) * S))
    assert counts(engine) == {(0,): 11}
    build_marked(engine, LATER_S)
    assert counts(engine) == {(0,): 11}


def test_a_bucket_waits_for_its_end(engine: Engine, write: Write, request_row: Requests) -> None:
    write(request_row(1, received_unix_ns=(START_S + 30) * S))
    assert build_marked(engine, START_S + 60).built == 0
    assert counts(engine) == {(0,): 1}
    assert build_marked(engine, START_S + 120).built == 1
    assert pending(engine, HOUR_S, 0, LATER_S) == [START_S]
    assert counts(engine) == {(0,): 1}


def test_a_slower_writer_does_not_overwrite_a_newer_rollup(
    sqlite: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one has read fewer rows of the minute."""
    once = [True]

    put(sqlite, request_row(1, received_unix_ns=START_S * S))
    begin(sqlite)
    other = open_database(sqlite.url.render_as_string())

    def read_slowly(engine: Engine, *about: Any) -> pa.Table:
        found = request_columns(engine, *about)
        if once and once.pop():
            put(other, request_row(2, received_unix_ns=START_S * S))
            build_marked(other, LATER_S)
        return found

    monkeypatch.setattr(request_rollups, "request_columns", read_slowly)
    build_marked(sqlite, LATER_S)
    other.dispose()
    build_marked(sqlite, LATER_S)
    assert counts(sqlite) == {(0,): 2}


def test_simulated_rollups_are_deleted(engine: Engine, write: Write, request_row: Requests) -> None:
    at = START_S * S
    write(
        request_row(1, received_unix_ns=at),
        request_row(2, received_unix_ns=at, source=Source.SIMULATOR),
    )
    build_marked(engine, LATER_S)
    question = asked(engine)
    assert question.sums(()).requests.tolist() == [2]
    assert question.simulated
    delete_simulation(engine)
    build_marked(engine, LATER_S)
    question = asked(engine)
    assert question.sums(()).requests.tolist() == [1]
    assert not question.simulated


def test_rollups_outlive_requests(engine: Engine, write: Write, request_row: Requests) -> None:
    write(*(request_row(i, received_unix_ns=(START_S + i) * S) for i in range(100)))
    delete_older(engine, 3600 * S, LATER_S * S, pause=lambda: None)
    assert counts(engine) == {(0,): 100}
    write(request_row(200, received_unix_ns=START_S * S))
    build_marked(engine, LATER_S)
    assert counts(engine) == {(0,): 100}
    assert marked(engine, MINUTE_S) == {}


def test_a_plan_counts_no_time_in_the_future(
    engine: Engine, write: Write, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(request_row(1, received_unix_ns=START_S * S))
    build_marked(engine, LATER_S)
    monkeypatch.setattr(time, "time_ns", lambda: (START_S + 90) * S)
    for to_s, counted_s in ((60, 60), (85, 90), (90, 90), (95, 95)):
        found = asked(engine, Window((START_S + 1) * S, (START_S + to_s) * S)).plan
        assert found.counted == Window(START_S * S, (START_S + counted_s) * S)


def test_hours_outlive_minutes(engine: Engine, write: Write, request_row: Requests) -> None:
    write(*(request_row(i, received_unix_ns=(START_S + i * 60) * S) for i in range(0, 180, 20)))
    build_marked(engine, LATER_S)
    asked_for = Window((START_S + 120) * S, (START_S + 7000) * S)
    assert asked(engine, asked_for).plan.window == Window((START_S + 120) * S, (START_S + 7020) * S)
    now_s = START_S + 2 * 3600 + 90 * 86_400
    delete_older_rollups(engine, 90 * 86_400 * S, 400 * 86_400 * S, now_s * S)
    with engine.connect() as connection:
        left = connection.scalars(
            select(ROLLUPS.c.from_unix_s).where(
                ROLLUPS.c.width_s == MINUTE_S, ROLLUPS.c.grouping == 0
            )
        ).all()
    assert min(left) == START_S + 7200
    question = asked(engine, asked_for)
    assert question.plan.window == Window(START_S * S, (START_S + 7200) * S)
    assert question.sums(()).requests.tolist() == [6]
    assert counts(engine, step_s=60)[0,] == 3
    delete_older_rollups(engine, 86_400 * S, 86_400 * S, LATER_S * S)
    assert asked(engine).sums(()).requests.tolist() == []
    with pytest.raises(ValueError, match="hourly rollups must be at least the retention"):
        delete_older_rollups(engine, 2 * S, S, LATER_S * S)


def test_labels_that_rollups_lack_are_refused(engine: Engine) -> None:
    build_marked(engine, LATER_S)
    with pytest.raises(ValueError, match=r"have no label 'config'; allowed: model, lora"):
        rollups(engine, EVER, by=["config"])
    with pytest.raises(ValueError, match="multiple of 60 s, not 90"):
        rollups(engine, EVER, step_s=90)
    assert asked(engine).sums(("e2e_s",)).requests.size == 0
    assert np.isnan(asked(engine).quantiles("ttft_s", nearest_ranks((0.5,))).value_s).all()


def test_filters_equal_those_of_rows(engine: Engine, write: Write, request_row: Requests) -> None:
    write(*fleet(request_row, 150, hours=0.2))
    begin(engine)
    for _ in range(2):
        for equals in ({"tenant": "x"}, {"tenant": None, "model": "a"}, {"streamed": "false"}):
            rows = request_table(engine, EVER, equals=equals).num_rows
            assert sum(asked(engine, equals=equals).sums(()).requests.tolist()) == rows
        build_marked(engine, LATER_S)


DURATION = st.one_of(
    st.none(), st.floats(0, 1e5), st.just(0.0), st.just(-1.0), st.floats(1e-12, 1e300)
)


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Model, tenant, outcome and two durations."""
    plain = {
        name: pa.nulls(len(rows), pa.string() if name in ("lora", "route") else pa.float64())
        for name in COLUMNS
    }
    return pa.table(
        {
            **plain,
            **{name: pa.nulls(len(rows), pa.string()) for name in ("region", "replica")},
            "streamed": pa.nulls(len(rows), pa.bool_()),
            "source": pa.repeat("instrumentation", len(rows)),
            "model": pa.array([row[0] for row in rows], pa.string()),
            "tenant": pa.array([row[1] for row in rows], pa.string()),
            "outcome": pa.repeat("stop", len(rows)),
            "ttft_s": pa.array([row[2] for row in rows], pa.float64()),
            "e2e_s": pa.array([row[3] for row in rows], pa.float64()),
        }
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", None]), st.sampled_from(["x", None]), DURATION, DURATION
            ),
            min_size=1,
            max_size=10,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_sharded_rollups_merged_equal_the_whole(shards: list[list[tuple[Any, ...]]]) -> None:
    parts = [buckets_of(table_of(shard), LabelSets(), 0)[0][False] for shard in shards]
    everything = [row for shard in shards for row in shard]
    whole = buckets_of(table_of(everything), LabelSets(), 0)[0][False]
    for order in (parts, parts[::-1]):
        found = merged(order)
        for grouping, sums in whole.sums.items():
            assert found.sums[grouping].cells.tolist() == sums.cells.tolist()
            assert found.sums[grouping].requests.tolist() == sums.requests.tolist()
            for name, facts in sums.facts.items():
                np.testing.assert_allclose(found.sums[grouping].facts[name], facts, rtol=1e-9)
        for key, sketches in whole.sketches.items():
            for name in ("cells", "sizes", "bins", "counts"):
                assert getattr(found.sketches[key], name).tolist() == (
                    getattr(sketches, name).tolist()
                )
