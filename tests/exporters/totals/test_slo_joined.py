"""`/metrics` counts the request of a user once, with the user's latencies."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from alerts.expression import parse
from alerts.fields import GOOD
from alerts.objectives import Goodput
from exporters.prometheus import PrometheusExporter
from exporters.totals import slo
from store.database import open_database
from store.joined.received_rows import ReceivedRows
from telemetry.requests import Outcome, RequestTimeline
from tests.store.conftest import put
from tests.store.joined.rows import START_NS, S
from tests.store.joined.test_user_requests import BOTH, STATED, pair, store_rows

NUMBER = 20
OBJECTIVES = {
    # 100 ms at the prefill server, 35 ms at the decode server, 155 ms for the user
    "slow": Goodput(None, parse("ttft_s <= 0.12", GOOD)),
    "fast": Goodput(None, parse("ttft_s <= 0.2", GOOD)),
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'tailspan.db'}")
    yield engine
    engine.dispose()


def open_exporter(engine: Engine, clock: Any, roles: dict[str, str]) -> PrometheusExporter:
    """An exporter that knows the roles of the servers."""
    clock.unix_ns = START_NS + 90 * S
    history = [
        replace(row, received_unix_ns=row.received_unix_ns - 600 * S, trace_id=f"a{number:031x}")
        for number in range(3)
        for row in pair(number)
    ]
    store_rows(engine, history, roles)
    users = ReceivedRows(engine, clock)
    exporter = PrometheusExporter(clock_unix_ns=clock, objectives=OBJECTIVES, users=users)
    assert counts(exporter, "slow") == (0, 0)
    return exporter


def send(exporter: PrometheusExporter, engine: Engine, rows: list[RequestTimeline]) -> None:
    put(engine, *rows)
    exporter.on_stored(rows, [])


def counts(exporter: PrometheusExporter, name: str) -> tuple[float | None, float | None]:
    value = exporter.registry.get_sample_value
    return (
        value("tailspan_slo_good_events_total", {"slo": name}),
        value("tailspan_slo_events_total", {"slo": name}),
    )


@pytest.mark.parametrize("first", ["p", "d"])
@pytest.mark.parametrize("roles", [STATED, BOTH])
def test_each_request_is_one_event_with_the_users_ttft(
    engine: Engine, clock: Any, roles: dict[str, str], first: str
) -> None:
    exporter = open_exporter(engine, clock, roles)
    rows = [row for number in range(NUMBER) for row in pair(number)]
    send(exporter, engine, [row for row in rows if row.replica == first])
    clock.advance(5)
    send(exporter, engine, [row for row in rows if row.replica != first])
    assert counts(exporter, "fast") == (0, 0), "the second server's rows may be on their way"
    clock.advance(15)
    assert counts(exporter, "slow") == (0, NUMBER)
    assert counts(exporter, "fast") == (NUMBER, NUMBER)
    clock.advance(15)
    assert counts(exporter, "fast") == (NUMBER, NUMBER)


def test_failed_prefills_and_lost_ids_are_events(engine: Engine, clock: Any) -> None:
    exporter = open_exporter(engine, clock, STATED)
    failed, _ = pair(0, outcome=Outcome.ERROR)
    lost = replace(pair(1)[1], trace_id="e" * 32, request_id="cmpl-other-0")
    send(exporter, engine, [failed, pair(1)[0], lost])
    clock.advance(20)
    assert counts(exporter, "slow") == (1, 2)


def test_without_scrapes_the_oldest_rows_count_without_a_join(
    engine: Engine, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = open_exporter(engine, clock, STATED)
    monkeypatch.setattr(slo, "MAX_WAITING", 3)
    for number in range(3):
        send(exporter, engine, pair(number))
        clock.advance(2)
    assert counts(exporter, "fast") == (4, 4)
    clock.advance(20)
    assert counts(exporter, "fast") == (5, 5)


def test_if_the_store_cannot_be_read_the_rows_count(engine: Engine, clock: Any) -> None:
    class Unreadable(ReceivedRows):
        def joined(self, rows: pa.Table) -> pa.Table:
            raise OSError("the database does not respond")

    exporter = open_exporter(engine, clock, STATED)
    broken = PrometheusExporter(
        clock_unix_ns=clock, objectives=OBJECTIVES, users=Unreadable(engine, clock)
    )
    for each in (exporter, broken):
        counts(each, "fast")
        send(each, engine, pair(0))
    clock.advance(20)
    assert counts(exporter, "fast") == (1, 1)
    assert counts(broken, "fast") == (2, 2)


def test_without_separate_servers_rows_count_at_once(engine: Engine, clock: Any) -> None:
    exporter = open_exporter(engine, clock, {})
    send(exporter, engine, pair(0))
    assert counts(exporter, "fast") == (2, 2)
