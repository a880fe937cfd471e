import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Double, Engine, create_engine, literal, select

from store.queries import (
    BATCH_ROWS,
    gpu_table,
    label_values,
    newest_request_unix_ns,
    newest_unix_ns,
    request_count,
    request_table,
    sample_peaks,
    sample_table,
    simulated,
    tpot,
)
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample, GpuSource
from telemetry.requests import Outcome, RequestTimeline, Source, tpot_s
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window

S = 1_000_000_000
START_NS = 1_763_634_000 * S
EVER = Window(0, 2**63 - 1)

Requests = Callable[..., RequestTimeline]
Samples = Callable[..., EngineSample]
Gpus = Callable[..., GpuSample]
Write = Callable[..., None]


def ids(table: pa.Table) -> list[str]:
    return [name.removeprefix("chatcmpl-") for name in table["request_id"].to_pylist()]


def test_a_window_holds_its_start_and_not_its_end(
    engine: Engine, write: Write, request_row: Requests, sample_row: Samples
) -> None:
    write(*(request_row(i) for i in range(4)), *(sample_row(i) for i in range(4)))
    window = Window(START_NS + S, START_NS + 3 * S)
    assert ids(request_table(engine, window)) == ["1", "2"]
    assert request_count(engine, window) == 2
    assert sample_table(engine, window).num_rows == 2


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="2 > 1"):
        Window(2, 1)
    with pytest.raises(ValueError, match="64 bits"):
        Window(0, 2**63)


def test_unknown_is_null_and_0_is_not(engine: Engine, write: Write, request_row: Requests) -> None:
    write(request_row(1, queue_s=0.0, preemptions=0, streamed=False, tenant=""), request_row(2))
    found = request_table(engine, EVER, columns=["queue_s", "preemptions", "streamed", "tenant"])
    assert found.to_pylist()[0] == {
        "queue_s": 0.0,
        "preemptions": 0,
        "streamed": False,
        "tenant": "",
    }
    assert all(column.null_count == 1 for column in found.columns)


@given(st.none() | st.floats(0, 1e6), st.none() | st.integers(0, 10**6))
def test_tpot_in_sql_equals_python(decode_s: float | None, output_tokens: int | None) -> None:
    row = select(
        literal(decode_s, Double()).label("decode_s"),
        literal(output_tokens, BigInteger()).label("output_tokens"),
    ).subquery()
    in_sql = tpot(row.c.decode_s, row.c.output_tokens)
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        assert connection.scalar(select(in_sql)) == tpot_s(decode_s, output_tokens)
    engine.dispose()


def test_rows_match_all_labels(engine: Engine, write: Write, request_row: Requests) -> None:
    write(
        request_row(1, tenant="a", engine=0, streamed=True),
        request_row(2, tenant="a", engine=1, streamed=False),
        request_row(3, engine=0),
        request_row(4, tenant="a", engine=0, outcome=Outcome.ABORT),
    )

    def picked(**equals: str | None) -> list[str]:
        return ids(request_table(engine, EVER, equals=equals))

    assert picked(tenant="a", engine="0") == ["1", "4"]
    assert picked(tenant="a", outcome="abort") == ["4"]
    assert picked(tenant=None) == ["3"]
    assert picked(streamed="false") == ["2"]
    assert picked(tenant="A") == []


def test_samples_are_in_order_of_time(engine: Engine, write: Write, sample_row: Samples) -> None:
    write(sample_row(3), sample_row(1), sample_row(2, replica="b"), sample_row(1, engine=1))
    found = sample_table(engine, EVER, equals={"engine": "0"}, columns=["at_unix_ns", "replica"])
    assert found.to_pylist() == [
        {"at_unix_ns": START_NS + 1 * S, "replica": "a"},
        {"at_unix_ns": START_NS + 2 * S, "replica": "b"},
        {"at_unix_ns": START_NS + 3 * S, "replica": "a"},
    ]


def test_gpu_samples_are_in_order_of_label_and_time(
    engine: Engine, write: Write, gpu_row: Gpus
) -> None:
    nvml = GpuSource.NVML
    write(
        gpu_row(2, throttle_reasons=""),
        gpu_row(1, source=nvml, throttle_reasons="hw_slowdown"),
        gpu_row(1, gpu="1"),
        gpu_row(1, replica="b"),
    )
    columns = ["at_unix_ns", "source", "throttle_reasons"]
    found = gpu_table(engine, EVER, equals={"replica": "a", "gpu": "0"}, columns=columns)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (START_NS + S, "nvml", "hw_slowdown"),
        (START_NS + 2 * S, None, ""),
    ]
    assert gpu_table(engine, EVER).num_rows == 4
    assert gpu_table(engine, Window(START_NS, START_NS + 2 * S)).num_rows == 3


def test_rows_are_in_the_requested_order_with_unknown_values_last(
    engine: Engine, write: Write, request_row: Requests
) -> None:
    write(
        request_row(4),
        request_row(2, decode_s=1.0, output_tokens=2),
        request_row(3, ttft_s=0.1, decode_s=1.0, output_tokens=1),
        request_row(1, ttft_s=0.5),
    )
    for order_by, expected in (
        *((None, "1234"), ("-received_unix_ns", "4321"), ("ttft_s", "3124")),
        *(("-ttft_s", "1324"), ("-tpot_s", "2134")),
    ):
        assert ids(request_table(engine, EVER, order_by=order_by)) == [*expected], order_by
        assert ids(request_table(engine, EVER, order_by=order_by, limit=2)) == [*expected[:2]]


def test_batches_keep_the_order(engine: Engine, write: Write, request_row: Requests) -> None:
    n = BATCH_ROWS + 1
    write(*(request_row(i) for i in range(n)))
    found = request_table(engine, Window(0, 2**63 - 1), columns=["received_unix_ns"])
    assert found["received_unix_ns"].to_pylist() == [START_NS + i * S for i in range(n)]


def test_unknown_columns_are_refused(engine: Engine) -> None:
    for hostile in ("nope", "e2e_s; DROP TABLE requests", "", "--e2e_s", "*"):
        expected = f"unknown column {re.escape(repr(hostile.removeprefix('-')))}; allowed: .*tpot_s"
        with pytest.raises(ValueError, match=expected):
            request_table(engine, EVER, order_by=hostile)
        with pytest.raises(ValueError, match=r"unknown column .*; allowed: .*tpot_s"):
            request_table(engine, EVER, columns=[hostile])
        with pytest.raises(ValueError, match=r"unknown column .*; allowed: .*kv_usage_ratio"):
            sample_table(engine, EVER, columns=[hostile])
        with pytest.raises(ValueError, match=r"unknown label .*; allowed: .*tenant"):
            request_table(engine, EVER, equals={hostile: "a"})
        with pytest.raises(ValueError, match=r"unknown label .*; allowed: .*replica"):
            sample_table(engine, EVER, equals={hostile: "a"})
        with pytest.raises(ValueError, match=r"unknown label .*; allowed: .*tenant"):
            label_values(engine, EVER, hostile)


def test_impossible_label_values_are_refused(engine: Engine) -> None:
    """An empty result would suggest that no such requests exist."""
    impossible = [("engine", "zero"), ("engine", "1" * 30), ("engine", "1 OR 1"), ("streamed", "1")]
    for label, value in impossible:
        with pytest.raises(ValueError, match=f"{label} = '{value}': must be"):
            request_table(engine, EVER, equals={label: value})


def test_a_negative_limit_is_refused(engine: Engine, write: Write, request_row: Requests) -> None:
    """SQL would interpret a negative limit as "all"."""
    write(request_row(1))
    assert request_table(engine, EVER, limit=0).num_rows == 0
    with pytest.raises(ValueError, match="not -1"):
        request_table(engine, EVER, limit=-1)


def test_ended_after_an_instant(engine: Engine, write: Write, request_row: Requests) -> None:
    at = 1_790_000_000 * 10**9
    received = [at - 10 * 10**9, at - 10 * 10**9, at - 10**9, at + 1]
    lasted_s = [9.9, 10.000_000_1, 1.5, 0.1]
    write(
        *(
            request_row(number, received_unix_ns=when, e2e_s=e2e_s)
            for number, (when, e2e_s) in enumerate(zip(received, lasted_s, strict=True))
        )
    )
    found = request_table(engine, EVER, columns=["e2e_s"], ended_after_unix_ns=at)
    assert found["e2e_s"].to_pylist() == lasted_s[1:]


def test_label_values_of_a_window(engine: Engine, write: Write, request_row: Requests) -> None:
    write(
        request_row(1, tenant="b", engine=10, streamed=True),
        request_row(2, tenant="a", engine=9),
        request_row(3, tenant="b"),
        request_row(4),
        request_row(9, tenant="late"),
    )
    window = Window(START_NS, START_NS + 5 * S)
    assert label_values(engine, window, "tenant") == ["a", "b"]
    assert label_values(engine, window, "engine") == ["9", "10"]
    assert label_values(engine, window, "streamed") == ["true"]
    assert label_values(engine, window, "outcome") == ["stop"]
    assert label_values(engine, window, "lora") == []


def test_the_newest_is_the_latest_of_requests_and_samples(
    engine: Engine, write: Write, request_row: Requests, sample_row: Samples
) -> None:
    assert newest_unix_ns(engine) is None
    write(request_row(5))
    assert newest_unix_ns(engine) == START_NS + 5 * S
    write(sample_row(7))
    assert newest_unix_ns(engine) == START_NS + 7 * S
    assert newest_request_unix_ns(engine) == START_NS + 5 * S


def test_a_request_or_sample_in_the_window_marks_simulated_data(
    engine: Engine, write: Write, request_row: Requests, sample_row: Samples
) -> None:
    write(
        request_row(1),
        sample_row(1),
        request_row(2, source=Source.SIMULATOR),
        sample_row(3, simulated=True),
    )
    for second, expected in enumerate([False, False, True, True, False]):
        window = Window(START_NS + second * S, START_NS + (second + 1) * S)
        assert simulated(engine, window) is expected


def test_a_window_is_answered_from_the_index(sqlite: Engine) -> None:
    """A query of 15 min must not read a month."""
    with sqlite.connect() as connection:
        for table, instant in (
            ("requests", "received_unix_ns"),
            ("engine_samples", "at_unix_ns"),
            ("gpu_samples", "at_unix_ns"),
        ):
            plan = connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE {instant} >= 1 ORDER BY {instant}"
            ).all()
            assert f"USING INDEX {table}_{instant}" in str(plan)
            assert "TEMP B-TREE" not in str(plan)


def test_an_unreadable_database_is_a_store_error(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
    with pytest.raises(
        StoreUnavailable, match=r"^the database cannot be read: [^\n]*requests[^\n]*$"
    ):
        request_table(engine, EVER)


def test_peaks_are_the_highest_of_each_engine_and_bin(
    engine: Engine, write: Callable[..., None], sample_row: Callable[..., EngineSample]
) -> None:
    write(
        *(
            sample_row(at_unix_ns=START_NS + n * S, replica=f"r{n % 2}", engine=0, waiting=n,
                       running=None, kv_usage_ratio=n / 10)
            for n in range(10)
        )
    )  # fmt: skip
    found = sample_peaks(
        engine,
        Window(START_NS, START_NS + 9 * S),
        START_NS - 2 * S,
        5 * S,
        ("waiting", "running", "kv_usage_ratio"),
    )
    reported = sorted(tuple(row.values()) for row in found.to_pylist())
    first, second = START_NS - 2 * S, START_NS + 3 * S
    assert reported == [
        ("r0", 0, first, 2, None, 0.2),
        ("r0", 0, second, 6, None, 0.6),
        ("r0", 0, second + 5 * S, 8, None, 0.8),
        ("r1", 0, first, 1, None, 0.1),
        ("r1", 0, second, 7, None, 0.7),
    ]
