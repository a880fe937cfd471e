"""Tests of three collectors on one database, which are killed and stopped at random moments."""

import random
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from benchmarks._collector_failures import run
from rig.clickhouse_server import clickhouse_server
from rig.install import NotHereError
from rig.postgresql import PostgreSQL

pytestmark = [pytest.mark.real, pytest.mark.timeout(420)]

TAKEOVER_S = 30.0
"""A collector that fails must be replaced within this time."""


def schema(server: PostgreSQL) -> str:
    """Return the URL of a new, empty schema."""
    made = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server.dsn) as connection:
        connection.execute(f"CREATE SCHEMA {made}")
    return server.url(schema=made)


@pytest.mark.parametrize("telemetry", ["with the state", "clickhouse"])
def test_each_burn_is_notified_once_and_no_row_is_lost(
    postgresql: PostgreSQL,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    telemetry: str,
) -> None:
    """The leases are in PostgreSQL. The telemetry is in the same database, or in ClickHouse."""
    url = schema(postgresql)
    seed = random.randrange(10**6)
    with ExitStack() as running:
        urls = [url]
        if telemetry == "clickhouse":
            try:
                server = clickhouse_server(tmp_path / "clickhouse")
                urls.insert(0, running.enter_context(server))
            except NotHereError as error:
                pytest.skip(str(error))
        outcome = run(tmp_path, url.replace("+psycopg", ""), *urls, seed=seed, seconds=90, burns=3)
    record_property("outcome", f"seed {seed}: {outcome}")
    assert outcome.kills + outcome.stops >= 4
    assert outcome.acknowledged > 1_000
    assert (outcome.lost, outcome.doubled) == (0, 0)
    assert outcome.takeovers_s
    assert max(outcome.takeovers_s) <= TAKEOVER_S
    for transition in ("firing", "resolved"):
        keys = [key for key in outcome.messages if key.endswith(f"/{transition}")]
        assert len(keys) == outcome.burns, outcome.messages
    # A failure during a delivery may repeat a message, but with the same key.
    assert sum(outcome.messages.values()) <= len(outcome.messages) + 1
