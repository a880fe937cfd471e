import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.checks import hung_engines
from cli.main import tailspan
from store.database import open_database
from store.writer import Writer
from telemetry.engines import EngineSample

RetentionPeriods = Callable[..., None]


@pytest.fixture
def keep(url: str) -> RetentionPeriods:
    def make(replica: str, in_flight: int | None, step_age_s: float | None) -> None:
        engine = open_database(url)
        now_ns = time.time_ns()
        sample = EngineSample(
            replica=replica,
            engine=0,
            process=1,
            at_unix_ns=now_ns,
            started_unix_ns=now_ns - 10**12,
            in_flight=in_flight,
            oldest_request_age_s=step_age_s,
            last_step_age_s=step_age_s,
        )
        with Writer(engine) as writer:
            writer.submit([], [sample]).result(10)
        engine.dispose()

    return make


def test_a_hung_server_is_a_failure_with_a_remedy(url: str, keep: RetentionPeriods) -> None:
    keep("vllm-0", 12, 95.0)
    keep("vllm-1", 3, 0.4)
    (found,) = hung_engines.steps(url)
    assert found.ok is False
    assert (
        found.detail == "vllm-0 has 12 requests running, but its engine has taken no step for 95 s"
    )
    assert found.mend is not None
    assert "server's log" in found.mend


def test_servers_that_step_are_fine_and_silence_is_another_finding(
    url: str, keep: RetentionPeriods
) -> None:
    keep("older", None, None)
    assert list(hung_engines.steps(url)) == []
    keep("idle", 0, None)
    (found,) = hung_engines.steps(url)
    assert (found.ok, found.detail) == (True, "replicas that report: 1; none hangs")


def test_an_unreadable_database_is_reported_only_by_its_check(tmp_path: Path) -> None:
    assert list(hung_engines.steps(f"sqlite:///{tmp_path}/none.db")) == []


def test_the_status_of_objectives_names_a_server_that_hangs(
    url: str, keep: RetentionPeriods
) -> None:
    keep("vllm-0", 1, 95.0)
    result = CliRunner().invoke(tailspan, ["slo", "status", "--database", url])
    assert result.exit_code == 1
    assert (
        "vllm-0 has 1 request running, but its engine has taken no step for 95 s" in result.stderr
    )
    keep("vllm-0", 1, 0.4)
    result = CliRunner().invoke(tailspan, ["slo", "status", "--database", url])
    assert (result.exit_code, result.stderr) == (0, "")
