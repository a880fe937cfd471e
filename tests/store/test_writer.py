import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from store.database import open_database
from store.errors import RowRefused, StoreBusy
from store.migrations import STATE, TELEMETRY
from store.queries import gpu_table, request_count, request_table, sample_table
from store.requests.best_source import BEST
from store.writer import GATHERED_ROWS, Writer
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import PARTS, RequestTimeline, part_s
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window
from tests.store.conftest import Databases

EVER = Window(-(2**63), 2**63 - 1)

Requests = Callable[..., RequestTimeline]
Samples = Callable[..., EngineSample]

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
FIELDS = {int: INT64, float: FLOAT, int | None: INT64 | st.none(), float | None: FLOAT | st.none()}


@contextmanager
def another_writing(tmp_path: Path) -> Iterator[None]:
    connection = sqlite3.connect(tmp_path / "tailspan.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.close()


def rows_of(noun: type, instant: str) -> st.SearchStrategy[list[Any]]:
    # a half-open window of 64-bit integers lacks the last nanosecond
    within = st.integers(-(2**63), 2**63 - 2)
    hints = {
        name: FIELDS[hint]
        for name, hint in get_type_hints(noun).items()
        if hint in FIELDS and name != instant
    }
    if noun is RequestTimeline:
        # several sources: test_best_source.py
        hints["source"] = st.sampled_from(BEST)
    else:
        # corrections: test_sender_clocks.py
        hints.pop("clock_ahead_s", None)
    rows = st.builds(noun, **hints, **{instant: within})
    if noun is RequestTimeline:
        # one span id at two instants, days apart, makes two rows (decision 060)
        return st.lists(rows, max_size=6, unique_by=lambda row: (row.trace_id, row.span_id))
    return st.lists(rows, max_size=6)


def as_kept(engine: Engine, row: Any) -> Any:
    """The row as this database stores it. PostgreSQL has no NUL in texts."""
    if engine.dialect.name != "postgresql":
        return row
    texts = {name: value for name, value in asdict(row).items() if isinstance(value, str)}
    return replace(row, **{name: text.replace("\0", "\ufffd") for name, text in texts.items()})


def key(engine: Engine, row: Any) -> tuple[object, ...]:
    """Includes the instant in ClickHouse."""
    if isinstance(row, RequestTimeline):
        instant = row.received_unix_ns if engine.dialect.name == "clickhousedb" else 0
        return instant, row.trace_id, row.span_id
    if isinstance(row, GpuSample):
        return row.replica, row.gpu, row.at_unix_ns
    return row.replica, row.process, row.engine, row.at_unix_ns


def everything(row: Any) -> dict[str, Any]:
    fields = asdict(row)
    if not isinstance(row, RequestTimeline):
        return fields
    parts = {
        part: part_s(fields[f"prefill_{part}"], fields[f"decode_{part}"], row.decode_s)
        for part in PARTS
    }
    return {**fields, "tpot_s": row.tpot_s, **parts}


SERVERS = [
    pytest.param(server, 10, marks=pytest.mark.real) for server in ("postgresql", "clickhouse")
]
"""few, because each example needs a new database"""


@pytest.mark.parametrize(("new_url", "examples"), [("sqlite", 20), *SERVERS], indirect=["new_url"])
def test_rows_are_read_as_they_were_written(new_url: Databases, examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        rows_of(RequestTimeline, "received_unix_ns"),
        rows_of(EngineSample, "at_unix_ns"),
        rows_of(GpuSample, "at_unix_ns"),
    )
    def same_when_read(
        requests: list[RequestTimeline], samples: list[EngineSample], gpus: list[GpuSample]
    ) -> None:
        engine = open_database(new_url.with_schemas("whole", TELEMETRY, STATE))
        with Writer(engine) as writer:
            for _ in range(2):  # a repetition changes nothing
                writer.submit(requests, samples, (), gpus).result(10)
        found: list[tuple[pa.Table, Sequence[Any], str]] = [
            (request_table(engine, EVER), requests, "received_unix_ns"),
            (sample_table(engine, EVER), samples, "at_unix_ns"),
            (gpu_table(engine, EVER), gpus, "at_unix_ns"),
        ]
        for table, given_rows, instant in found:
            rows = [as_kept(engine, row) for row in given_rows]
            first = {key(engine, row): row for row in reversed(rows)}.values()
            expected = sorted((everything(row) for row in first), key=str)
            assert sorted(table.to_pylist(), key=str) == expected
            assert sorted(table[instant].to_pylist()) == table[instant].to_pylist()
        engine.dispose()

    same_when_read()


def test_repeats_are_ignored(engine: Engine, request_row: Requests, sample_row: Samples) -> None:
    with Writer(engine) as writer:
        writer.submit([request_row(1)], [sample_row(1)]).result(10)
        writer.submit([request_row(1, e2e_s=9.0), request_row(2)], [sample_row(1)]).result(10)
        assert writer.submit([], []).done()
    assert request_table(engine, EVER)["e2e_s"].to_pylist() == [1.5, 1.5]
    assert sample_table(engine, EVER).num_rows == 1


def test_many_threads_write_while_others_read(engine: Engine, request_row: Requests) -> None:
    def send(thread: int) -> None:
        for turn in range(10):
            first = (thread * 10 + turn) * 5
            writer.submit([request_row(first + i) for i in range(5)], []).result(10)

    with Writer(engine) as writer, ThreadPoolExecutor(8) as pool:
        sending = [pool.submit(send, thread) for thread in range(6)]
        while not all(each.done() for each in sending):
            assert request_count(engine, EVER) % 5 == 0
        for each in sending:
            each.result()
    assert request_count(engine, EVER) == 300


def test_closing_writes_queued_rows(engine: Engine, request_row: Requests) -> None:
    writer = Writer(engine)
    waiting = [writer.submit([request_row(i)], []) for i in range(200)]
    writer.close()
    writer.close()
    assert all(each.done() and each.exception() is None for each in waiting)
    with pytest.raises(StoreUnavailable, match="closed"):
        writer.submit([request_row(201)], [])
    assert request_count(engine, EVER) == 200


def test_few_rows_wait_for_more(engine: Engine, request_row: Requests) -> None:
    """The first rows after a pause, and a full message, are written at once."""
    writer = Writer(engine, gather_s=3_600)
    writer.submit([request_row(0)], []).result(10)
    few = [writer.submit([request_row(i)], []) for i in range(1, 4)]
    assert not any(each.done() for each in few)
    writer.submit([request_row(i) for i in range(4, 4 + GATHERED_ROWS)], []).result(10)
    for each in few:
        each.result(10)
    last = writer.submit([request_row(4 + GATHERED_ROWS)], [])
    assert not last.done()
    writer.close()
    assert last.exception(0) is None
    assert request_count(engine, EVER) == 5 + GATHERED_ROWS


def test_waiting_rows_are_written_in_time(engine: Engine, request_row: Requests) -> None:
    with Writer(engine, gather_s=0.05) as writer:
        for i in range(5):
            writer.submit([request_row(i)], []).result(10)
    assert request_count(engine, EVER) == 5


def test_acknowledged_rows_survive_the_process(url: str, tmp_path: Path) -> None:
    program = """
import os, signal, sys
from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample
writer = Writer(open_database(sys.argv[1]))
sample = EngineSample(replica="a", engine=0, process=1, at_unix_ns=5, started_unix_ns=0)
writer.submit([], [sample]).result()
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", program, url], cwd=root, check=False, timeout=60)
    assert ended.returncode == -9
    engine = open_database(url, create=False)
    assert sample_table(engine, EVER)["at_unix_ns"].to_pylist() == [5]
    engine.dispose()


def test_a_lock_is_retryable(sqlite: Engine, tmp_path: Path, request_row: Requests) -> None:
    with Writer(sqlite) as writer:
        with another_writing(tmp_path), pytest.raises(StoreUnavailable, match="locked"):
            writer.submit([request_row(1)], []).result(10)
        writer.submit([request_row(1)], []).result(10)
    assert request_count(sqlite, EVER) == 1


@pytest.mark.parametrize(
    ("pragma", "expected", "cure"),
    [
        ("query_only = ON", "readonly", "query_only = OFF"),
        ("max_page_count = 1", "full", "max_page_count = 1000000"),
    ],
)
def test_a_full_or_read_only_disk_is_survived(
    sqlite: Engine, request_row: Requests, pragma: str, expected: str, cure: str
) -> None:
    now = [pragma]

    @event.listens_for(sqlite, "checkout")
    def _afflict(connection: sqlite3.Connection, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA {now[0]}")

    many = [request_row(i, request_id="x" * 1000) for i in range(100)]
    with Writer(sqlite) as writer:
        with pytest.raises(StoreUnavailable, match=expected):
            writer.submit(many, []).result(10)
        now[0] = cure
        assert request_count(sqlite, EVER) == 0
        writer.submit(many, []).result(10)
    assert request_count(sqlite, EVER) == 100


def test_a_full_queue_refuses_until_emptied(
    url: str, tmp_path: Path, request_row: Requests
) -> None:
    engine = open_database(url, busy_timeout_s=30)
    taken: list[Future[None]] = []

    def send_ten() -> None:
        for i in range(10):
            taken.append(writer.submit([request_row(2 * i), request_row(2 * i + 1)], []))

    with Writer(engine, capacity_rows=3) as writer:
        with another_writing(tmp_path), pytest.raises(StoreBusy, match=r"2 more would exceed 3"):
            send_ten()
        for each in taken:
            each.result(10)
        # otherwise the sender of a large item would resend it for ever
        writer.submit([request_row(100 + i) for i in range(10)], []).result(10)
    assert request_count(engine, EVER) == 2 * len(taken) + 10
    engine.dispose()


def test_cancelled_rows_are_not_written(url: str, tmp_path: Path, request_row: Requests) -> None:
    engine = open_database(url, busy_timeout_s=30)
    with Writer(engine) as writer:
        with another_writing(tmp_path):
            sent = [writer.submit([request_row(i)], []) for i in range(10)]
            left = [each for each in sent if each.cancel()]
        for each in sent:
            if each not in left:
                each.result(10)
    assert request_count(engine, EVER) == len(sent) - len(left)
    engine.dispose()


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "an integer beyond 64 bits": ({"prompt_tokens": 2**63}, "prompt_tokens = 0x8.*64 bits"),
    "an endless integer": ({"output_tokens": -(10**5000)}, "output_tokens = -0x.*64 bits"),
    "an instant beyond 64 bits": ({"received_unix_ns": 2**64}, "received_unix_ns.*64 bits"),
    "half a surrogate pair": ({"tenant": "a\ud800"}, r"tenant = 'a\\ud800': not valid Unicode"),
    "not a number": ({"queue_s": float("nan")}, "queue_s = nan: not a finite number"),
    "infinity": ({"e2e_s": float("inf")}, "e2e_s = inf: not a finite number"),
    "nothing where something is needed": ({"e2e_s": None}, "e2e_s = None: a value is required"),
    "a list": ({"tenant": ["a"]}, r"tenant = \['a'\]: not str"),
}


def test_bad_rows_are_refused(engine: Engine, request_row: Requests) -> None:
    with Writer(engine) as writer:
        for hostile, (about, text) in HOSTILE.items():
            if hostile != "a list":  # PostgreSQL converts the value to text
                with pytest.raises(RowRefused, match=text):
                    writer.submit([request_row(1), request_row(2, **about)], []).result(10)
        writer.submit([request_row(3)], []).result(10)
    assert request_table(engine, EVER)["request_id"].to_pylist() == ["chatcmpl-3"]


def test_unstorable_rows_do_not_fail_the_others(
    url: str, tmp_path: Path, request_row: Requests
) -> None:
    engine = open_database(url, busy_timeout_s=30)
    with Writer(engine) as writer:
        with another_writing(tmp_path):
            before = [writer.submit([request_row(i)], []) for i in range(3)]
            refused = [
                writer.submit([request_row(3), request_row(4, **about)], [])
                for about, _ in HOSTILE.values()
            ]
            after = [writer.submit([request_row(i)], []) for i in (5, 6)]
        for each in before + after:
            each.result(10)
        for each, (_, text) in zip(refused, HOSTILE.values(), strict=True):
            with pytest.raises(RowRefused, match=text):
                each.result(10)
    kept = request_table(engine, EVER)["request_id"].to_pylist()
    assert kept == [f"chatcmpl-{i}" for i in (0, 1, 2, 5, 6)]
    engine.dispose()


def test_a_label_is_only_text(
    engine: Engine, request_row: Requests, write: Callable[..., None]
) -> None:
    texts = (
        *("'; DROP TABLE requests; --", '" OR 1=1', "?1 :tenant %s {0}", "nul\0inside", ""),
        *("\u202ereversed \U0001f600 \ufffe", "x" * 1_000_000),
    )
    write(*(request_row(n, tenant=text) for n, text in enumerate(texts)), request_row(9))
    for text in texts:
        found = request_table(engine, EVER, equals={"tenant": text}, columns=["tenant"])
        assert found["tenant"].to_pylist() == [as_kept(engine, request_row(tenant=text)).tenant]
    assert request_table(engine, EVER, columns=["e2e_s"]).num_rows == len(texts) + 1


def test_a_defect_in_the_writer_is_survived(
    sqlite: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Writer(sqlite) as writer:
        with monkeypatch.context() as broken:
            broken.setattr(writer, "_commit", lambda _: 1 // 0)
            with pytest.raises(StoreUnavailable, match="the writer failed"):
                writer.submit([request_row(1)], []).result(10)
            assert (writer.task.failures, writer.task.problem) == (1, "ZeroDivisionError")
        writer.submit([request_row(1)], []).result(10)
        assert writer.task.failure_reason(0.0) is None
    assert writer.task.failure_reason(0.0) == "ended"
