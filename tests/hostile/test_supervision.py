import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

from prometheus_client.parser import text_string_to_metric_families

from rig.program import PATIENCE_S, Tailspan
from server import http_check
from tests.hostile.conftest import collecting
from tests.hostile.otlp_messages import record, spans

PROTOBUF = "application/x-protobuf"


def failures(metrics: str, task: str) -> float:
    body = http_check.get(f"{metrics}/metrics", 20.0).body
    return next(
        sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name == "tailspan_task_failures_total" and sample.labels["task"] == task
    )


def until(holds: Callable[[], bool], running: Tailspan) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, running.printed
        assert running.process.poll() is None, running.printed
        time.sleep(0.1)


def children_of(parent: int, word: bytes) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            if word in (status.parent / "cmdline").read_bytes():
                found.append(int(status.parent.name))
        except OSError:
            continue
    return found


def test_every_part_is_listed_and_failing_parts_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with collecting(tmp_path, f"sqlite:///{file}") as running:
        metrics = running.address("metrics")
        body = http_check.get(f"{metrics}/metrics", 20.0).body
        for part in ("evaluator", "retention", "store writer", "enrichment", "message reader"):
            assert f'tailspan_task_up{{task="{part}"}} 1\n' in body
        assert http_check.get(f"{metrics}/readyz").body == "ready\n"
        with sqlite3.connect(file) as other:
            other.execute("ALTER TABLE slo_evaluations RENAME TO gone")
        other.close()
        # The first request that has just ended triggers an evaluation.
        just_ended = spans([record(time.time_ns())], "r0").SerializeToString()
        where = running.address("http") + "/v1/traces"
        assert http_check.post(where, just_ended, PROTOBUF, 20.0).ok
        until(lambda: "evaluator (" in http_check.get(f"{metrics}/readyz").body, running)
        answer = http_check.get(f"{metrics}/readyz")
        assert (answer.status, answer.body) == (
            200,
            "ready; degraded: evaluator (StoreUnavailable)\n",
        )
        assert failures(metrics, "evaluator") >= 1
        assert http_check.post(where, b"", PROTOBUF, 20.0).ok
        with sqlite3.connect(file) as other:
            other.execute("ALTER TABLE gone RENAME TO slo_evaluations")
        other.close()
        until(lambda: http_check.get(f"{metrics}/readyz").body == "ready\n", running)


def test_repeated_kills_of_the_span_reader_lose_nothing(tmp_path: Path) -> None:
    with collecting(tmp_path, f"sqlite:///{tmp_path}/t.db") as running:
        where = running.address("http") + "/v1/traces"
        for _ in range(3):
            assert http_check.post(where, b"", PROTOBUF, 20.0).ok
            (reader,) = children_of(running.process.pid, b"collector.otlp.message_reader")
            os.kill(reader, SIGKILL)
        assert http_check.post(where, b"", PROTOBUF, 20.0).ok
        assert failures(running.address("metrics"), "message reader") == 3
        assert http_check.get(running.address("metrics") + "/readyz").body == "ready\n"
        # A malformed message is no failure of the reader.
        assert http_check.post(where, b"\xff" * 9, PROTOBUF, 20.0).status == 400
        assert failures(running.address("metrics"), "message reader") == 3
