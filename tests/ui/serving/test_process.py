import time
from dataclasses import replace
from typing import Any

import pytest

from telemetry.store_errors import DatabaseMissing
from tests.ui.opening import Database
from ui.frame.read_cache import cached_evidence, opened
from ui.serving import process
from ui.serving.process import read_ahead


def test_the_last_days_requests_are_read_ahead(
    database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    rows = incident(now - 1_500 * 10**9)
    old = [
        replace(row, span_id=f"f{row.span_id[1:]}") for row in incident(now - 20 * 3_600 * 10**9)
    ]
    url = database([*rows, *old])
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    monkeypatch.setattr(process, "ENOUGH_ROWS", len(rows))
    read_ahead(now)
    kept = cached_evidence(opened(url))
    assert kept.requests == len(rows)
    monkeypatch.setattr(process, "ENOUGH_ROWS", 10**6)
    read_ahead(now)
    assert kept.requests == len(rows) + len(old)


def test_a_missing_database_is_retried(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(DatabaseMissing):
        read_ahead(time.time_ns())
