"""Tests of three collectors on one database, which are killed and stopped at random moments."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM

import pytest
import requests
from opentelemetry.sdk.resources import Resource
from sqlalchemy import select
from tailspan_vllm import names
from tailspan_vllm.engine_state.state import EngineState, EngineStateSample
from tailspan_vllm.otlp.encoder import encode
from tailspan_vllm.otlp.engine_metrics import encode_samples
from tailspan_vllm.otlp.request_span import span_of

from benchmarks._collector_failures import run
from benchmarks._collector_traffic import record
from rig.clickhouse_server import clickhouse_server
from rig.install import ProgramUnavailableError
from rig.postgresql import PostgreSQL
from rig.program import Tailspan
from store.database import open_database
from store.schema import REQUESTS, SAMPLES

pytestmark = [pytest.mark.real, pytest.mark.timeout(420)]

TAKEOVER_S = 30.0
"""A collector that fails must be replaced within this time."""
AHEAD_NS = 60 * 10**9
"""How far the clock of a sender is ahead."""


def test_each_burn_is_notified_once_and_no_row_is_lost(
    postgresql: PostgreSQL, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The leases are in PostgreSQL. The telemetry is in ClickHouse, or without it in PostgreSQL.

    `test_upgrades.py` kills collectors that store telemetry in PostgreSQL.
    """
    urls = [postgresql.new_url()]
    dsn = urls[0].replace("+psycopg", "")
    seed = random.randrange(10**6)
    with ExitStack() as running:
        with suppress(ProgramUnavailableError):
            urls.insert(0, running.enter_context(clickhouse_server(tmp_path / "clickhouse")))
        outcome = run(tmp_path, dsn, *urls, seed=seed, seconds=90, burns=3)
    record_property("outcome", f"seed {seed}: {outcome}")
    assert outcome.kills + outcome.stops >= 4
    assert outcome.acknowledged > 1_000
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.takeovers_s
    assert max(outcome.takeovers_s) <= TAKEOVER_S
    for transition in ("firing", "resolved"):
        keys = [key for key in outcome.messages if key.endswith(f"/{transition}")]
        assert len(keys) == outcome.burns, outcome.messages
    # After a failure during a delivery, a message may be sent twice, with the same key.
    assert sum(outcome.messages.values()) <= len(outcome.messages) + 1


def test_a_sender_with_a_fast_clock_may_send_again_through_another_collector(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """The timestamp is part of the key, and each collector measures a different error of the
    sender's clock."""
    url = postgresql.new_url()
    resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: "vllm-0"})
    chance = random.Random(1)
    with ExitStack() as running:
        words = ("up", "--no-explorer", "--gpus=off", f"--database={url}")
        collectors = [running.enter_context(Tailspan(tmp_path, *words)) for _ in range(3)]
        addresses = [each.is_up().address("http") for each in collectors]
        for _ in range(10):
            records = [record(chance, "chat", 0.1) for _ in range(10)]
            fast = [
                replace(each, wall_offset_ns=each.wall_offset_ns + AHEAD_NS) for each in records
            ]
            body = bytes(encode([span_of(each, resource) for each in fast]))
            for address in addresses:
                answer = requests.post(
                    f"{address}/v1/traces",
                    body,
                    headers={"Content-Type": "application/x-protobuf"},
                    timeout=10,
                )
                assert answer.status_code == 200, answer.text
        for collector in collectors:
            assert collector.ends(SIGTERM) == 0, collector.printed
    engine = open_database(url, create=False)
    with engine.connect() as connection:
        ahead_s = list(connection.scalars(select(REQUESTS.c.clock_ahead_s)))
    engine.dispose()
    assert len(ahead_s) == 100
    assert None not in ahead_s


def test_a_clock_that_is_a_second_ahead_gives_one_series(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """One collector measures more than 1 s and corrects the clock. The other measures 0.7 s."""
    url = postgresql.new_url()
    resource = Resource({names.SERVICE_INSTANCE_ID: "vllm-0", names.PROCESS_PID: 7})
    started_unix_ns = time.time_ns() - 3_600 * 10**9
    with ExitStack() as running:
        words = ("up", "--no-explorer", "--gpus=off", f"--database={url}")
        collectors = [running.enter_context(Tailspan(tmp_path, *words)) for _ in range(2)]
        addresses = [each.is_up().address("http") for each in collectors]
        for turn in range(12):
            # Messages take longer to the second collector, so it measures a smaller lead.
            for address, lead_s in zip(addresses, (1.4, 0.7), strict=True):
                if turn < 4 and lead_s < 1:
                    continue  # the first collector corrects the clock after three messages
                time.sleep(0.1)
                state = EngineState(engine=0, started_unix_ns=started_unix_ns, model="llama")
                state.totals = {names.BUSY_TIME: 100.0 + turn}
                at_unix_ns = time.time_ns() + int(lead_s * 1e9)
                sample = EngineStateSample(at_unix_ns, state.snapshot({}, {}))
                answer = requests.post(
                    f"{address}/v1/metrics",
                    encode_samples([sample], resource),
                    headers={"Content-Type": "application/x-protobuf"},
                    timeout=10,
                )
                assert answer.status_code == 200, answer.text
        for collector in collectors:
            assert collector.ends(SIGTERM) == 0, collector.printed
    engine = open_database(url, create=False)
    columns = (SAMPLES.c.busy_s_total, SAMPLES.c.started_unix_ns, SAMPLES.c.clock_ahead_s)
    with engine.connect() as connection:
        rows = connection.execute(select(*columns)).all()
    engine.dispose()
    assert len(rows) == 20
    # On a busy machine, even the first messages may take too long to show the lead.
    series = {row[1:] for row in rows if row.busy_s_total >= 104}
    assert len(series) == 1
    ((_, ahead_s),) = series
    assert 1 < ahead_s <= 1.4
