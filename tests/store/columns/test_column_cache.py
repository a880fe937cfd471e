from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, delete

from store.columns import evidence as evidences
from store.columns.column_cache import CHUNK_NS, ColumnCache
from store.columns.evidence import EvidenceCache, EvidenceColumns, evidence
from store.connections import writing
from store.queries import GPU_COLUMNS, SAMPLE_COLUMNS, request_table
from store.schema import REQUESTS
from telemetry.engines import EngineSample
from telemetry.requests import RequestTimeline, Source
from telemetry.window import Window

COLUMNS = ("received_unix_ns", "tenant", "ttft_s", "output_tokens", "streamed")
AT = 2_939_390
"""The index of the tests' chunk 0."""

Write = Callable[..., None]
Row = Callable[..., RequestTimeline]


class Reading:
    """Records the windows that were read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: list[tuple[int, int]] = []

    def __call__(self, window: Window) -> pa.Table:
        if window.from_unix_ns < window.to_unix_ns:
            self.asked.append(
                (window.from_unix_ns // CHUNK_NS - AT, window.to_unix_ns // CHUNK_NS - AT)
            )
        return request_table(self._engine, window, columns=[*COLUMNS, "source"])


@pytest.fixture
def reading(engine: Engine) -> Reading:
    return Reading(engine)


def kept(engine: Engine, reading: Reading, **given: Any) -> ColumnCache:
    return ColumnCache(engine, REQUESTS.c.received_unix_ns, reading, **given)


def stretches(first: float, end: float) -> Window:
    return Window(int((AT + first) * CHUNK_NS), int((AT + end) * CHUNK_NS))


@pytest.fixture
def row(request_row: Row) -> Callable[..., RequestTimeline]:
    def make(number: int, **about: Any) -> RequestTimeline:
        at = AT * CHUNK_NS + number * CHUNK_NS // 3
        plain = {"received_unix_ns": at, "tenant": f"t{number}", "ttft_s": number / 7}
        return request_row(number, **{**plain, **about})

    return make


def numbers(table: pa.Table | None) -> list[int]:
    assert table is not None
    return [int(each[1:]) for each in table["tenant"].to_pylist()]


def test_any_window_is_answered_as_the_database_does(
    engine: Engine, write: Write, row: Row, reading: Reading
) -> None:
    write(*(row(number) for number in range(30) if number not in range(9, 15)))
    columns = kept(engine, reading)
    for window in (
        stretches(0, 2),
        stretches(1.4, 3.9),
        stretches(3, 5),
        stretches(-4, 40),
        stretches(0.1, 0.2),
        stretches(50, 60),
        stretches(2.5, 2.5),
    ):
        found = columns.table(window)
        assert found is not None
        plain = request_table(engine, window, columns=[*COLUMNS, "source"])
        assert found.equals(plain), window


def test_cached_columns_are_not_read_again(
    engine: Engine, write: Write, row: Row, reading: Reading
) -> None:
    write(*(row(number) for number in range(30)))
    columns = kept(engine, reading)
    columns.table(stretches(2, 5))
    columns.table(stretches(2.2, 4.7))
    columns.table(stretches(0, 8))
    assert reading.asked == [(2, 5), (0, 2), (5, 8)]


def test_a_late_row_invalidates_its_chunk(
    engine: Engine, write: Write, row: Row, reading: Reading
) -> None:
    write(*(row(number) for number in range(12)))
    columns = kept(engine, reading)
    columns.table(stretches(0, 4))
    late = row(3).received_unix_ns + 1
    write(row(99, received_unix_ns=late))
    assert numbers(columns.table(stretches(0, 4))) == [0, 1, 2, 3, 99, *range(4, 12)]
    with writing(engine) as connection:
        connection.execute(delete(REQUESTS).where(REQUESTS.c.tenant == "t7"))
    write(row(77, received_unix_ns=row(8).received_unix_ns + 5))
    assert numbers(columns.table(stretches(2, 3))) == [6, 8, 77]
    assert reading.asked == [(0, 4), (1, 2), (2, 3)]


def test_a_better_source_in_another_chunk_takes_precedence(
    engine: Engine, write: Write, row: Row
) -> None:
    write(row(0), row(1, source=Source.CLIENT, request_id="chatcmpl-x"))
    found = EvidenceCache(engine, EvidenceColumns(COLUMNS, SAMPLE_COLUMNS, GPU_COLUMNS))
    assert numbers(found.read(stretches(0, 1), {}).requests) == [0, 1]
    write(row(10, request_id="chatcmpl-x"))
    assert numbers(found.read(stretches(0, 1), {}).requests) == [0]


def test_the_amount_of_cached_data_is_limited(
    engine: Engine, write: Write, row: Row, reading: Reading
) -> None:
    write(*(row(number) for number in range(30)))
    columns = kept(engine, reading, max_rows=6)
    assert columns.table(stretches(0, 3)) is None
    columns.table(stretches(0, 1))
    columns.table(stretches(1, 2))
    columns.table(stretches(0, 1))
    columns.table(stretches(2, 3))
    assert columns.rows == 6
    columns.table(stretches(0, 1))
    assert reading.asked == [(0, 1), (1, 2), (2, 3)]
    assert columns.table(Window(0, 2**63 - 1)) is None


def test_a_cached_chunk_keeps_no_other_memory_alive(
    engine: Engine, write: Write, row: Row, reading: Reading
) -> None:
    write(*(row(number) for number in range(30)))
    columns = kept(engine, reading)
    columns.table(stretches(0, 10))
    one = columns.table(stretches(0, 1))
    assert one is not None
    assert one.get_total_buffer_size() < 1_000 + reading(stretches(0, 1)).get_total_buffer_size()


def test_cached_evidence_equals_the_evidence(
    engine: Engine,
    write: Write,
    row: Row,
    sample_row: Callable[..., EngineSample],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples = [
        sample_row(number, at_unix_ns=AT * CHUNK_NS + number * 10**9, steps_total=2**40 + number)
        for number in range(1000)
    ]
    write(*(row(number, tenant=f"t{number % 2}") for number in range(9)), *samples)
    wanted = EvidenceColumns([*COLUMNS, "of_a_later_version"], SAMPLE_COLUMNS, GPU_COLUMNS)
    found = EvidenceCache(engine, wanted)
    for equals in ({}, {"tenant": "t1"}, {"tenant": None}, {"model": "m"}):
        ours = found.read(stretches(0.5, 2.5), equals)
        plain = evidence(engine, stretches(0.5, 2.5), wanted, equals)
        assert ours.requests.column_names == plain.requests.column_names
        for name in ("received_unix_ns", "tenant", "output_tokens", "streamed"):
            assert ours.requests[name].to_pylist() == plain.requests[name].to_pylist()
        assert ours.requests["ttft_s"].to_pylist() == pytest.approx(
            plain.requests["ttft_s"].to_pylist(), rel=1e-6
        )
        assert ours.engines["steps_total"].to_pylist() == plain.engines["steps_total"].to_pylist()
        assert ours.samples_every_s is None
    monkeypatch.setattr(evidences, "MAX_SAMPLES", 400)
    thinned = EvidenceCache(engine, wanted).read(stretches(0, 2), {})
    assert thinned.samples_every_s is not None
    assert 0 < thinned.engines.num_rows < 700
