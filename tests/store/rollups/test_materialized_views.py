"""Why rollups are built from rows: a ClickHouse materialized view counts repeated rows again."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from store.rollups.bucket_builder import build_marked
from store.rollups.marks import begin
from store.rollups.queries import rollups
from store.writer import Writer
from telemetry.requests import RequestTimeline, Source
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window

pytestmark = [pytest.mark.real, pytest.mark.parametrize("new_url", ["clickhouse"], indirect=True)]

S = 10**9
START_S = 1_763_632_800
LATER_S = START_S + 30 * 86_400
HOUR = Window(START_S * S, (START_S + 3_600) * S)
MINUTES = 10
VIEW = (
    "CREATE TABLE counted (minute Int64, requests UInt64)"
    " ENGINE = SummingMergeTree ORDER BY minute",
    "CREATE MATERIALIZED VIEW counting TO counted AS SELECT"
    " intDiv(received_unix_ns, 60000000000) * 60 AS minute, count() AS requests"
    " FROM requests GROUP BY minute",
)

Requests = Callable[..., RequestTimeline]


def viewed(engine: Engine) -> dict[int, int]:
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT minute, sum(requests) FROM counted GROUP BY minute"
        )
        return {int(minute): int(number) for minute, number in found}


def rolled(engine: Engine) -> dict[int, int]:
    build_marked(engine, LATER_S)
    found = rollups(engine, HOUR, step_s=60)
    assert found is not None
    assert not found.plan.requests
    sums = found.sums(())
    return {
        START_S + 60 * cell: number
        for cell, number in zip(sums.cells.tolist(), sums.requests.tolist(), strict=True)
    }


def test_rollups_are_exact_and_a_materialized_view_is_not(
    engine: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(engine)
    with engine.connect() as connection:
        for statement in VIEW:
            connection.exec_driver_sql(statement)
    drawn = random.Random(21)
    rows = [
        request_row(i, received_unix_ns=START_S * S + drawn.randrange(MINUTES * 60 * S))
        for i in range(600)
    ]
    expected = Counter(row.received_unix_ns // (60 * S) * 60 for row in rows)

    def send(some: list[RequestTimeline]) -> None:
        with Writer(engine) as writer:
            writer.submit(some, []).result(30)

    send(rows[:200])
    rolled(engine)
    send(rows[200:400])  # late: all minutes have a rollup already
    send(drawn.sample(rows[:400], 100))  # sent again, in another batch

    def killed(*_: Any) -> None:
        raise RuntimeError("killed between the insert and the acknowledgment")

    with monkeypatch.context() as patched:
        patched.setattr("store.writer.mark_minutes", killed)
        with pytest.raises(StoreUnavailable):
            send(rows[400:500])
    send(drawn.sample(rows[400:], 200))  # rows sent again, together with newer ones
    assert rolled(engine) == expected
    counted = viewed(engine)
    assert sum(counted.values()) == 800  # a third too many
    assert all(counted[minute] > number for minute, number in expected.items())


def test_a_better_source_takes_a_request_out_of_a_rollup_but_not_out_of_a_view(
    engine: Engine, request_row: Requests
) -> None:
    """Counting only new keys would not help: both rows have new keys."""
    begin(engine)
    with engine.connect() as connection:
        for statement in VIEW:
            connection.exec_driver_sql(statement)
    with Writer(engine) as writer:
        for source, span in ((Source.CLIENT, "a" * 16), (Source.INSTRUMENTATION, "b" * 16)):
            row = request_row(1, source=source, span_id=span, received_unix_ns=START_S * S)
            writer.submit([row], []).result(30)
    assert rolled(engine) == {START_S: 1}
    assert viewed(engine) == {START_S: 2}
