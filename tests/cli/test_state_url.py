"""With `--state-url`, each command reads the state from the separate database."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from store.alerting.incidents import store_evaluation
from store.database import open_database
from store.writer import Writer
from telemetry.incidents import IncidentRow
from telemetry.requests import RequestTimeline
from tests.chat_objective import chat_openslo

PAGE = IncidentRow("chat", "page", 130, 100, 190, 190, 190, "20", None)
AT = ["slo", "status", "--at", "1970-01-01T00:10:00"]


def run(*words: str, **variables: str) -> Result:
    return CliRunner().invoke(tailspan, words, env=variables, catch_exceptions=False)


@pytest.fixture
def state_url(url: str, tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> str:
    state_url = f"sqlite:///{tmp_path}/state.db"
    engine = open_database(url, state_url)
    with Writer(engine) as writer:
        writer.submit([request_row(1)], []).result(10)
    store_evaluation(engine, "chat", 190, [PAGE])
    engine.dispose()
    return state_url


@pytest.fixture
def status(tmp_path: Path, url: str) -> list[str]:
    objectives = tmp_path / "objectives.yaml"
    objectives.write_text(chat_openslo("ttft_s <= 0.5"))
    return [*AT, str(objectives), "--database", url]


def test_a_flag_a_variable_and_the_file_name_the_state_database(
    status: list[str], state_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "tailspan.toml"
    file.write_text(f'state-url = "{state_url}"\n')
    for result in (
        run(*status, "--state-url", state_url),
        run(*status, TAILSPAN_STATE_URL=state_url),
        run(*status, "--config", str(file)),
    ):
        assert "1970-01-01 00:02:10" in result.stdout, result.output


def test_a_missing_state_url_is_an_error_with_the_right_one(
    status: list[str], state_url: str
) -> None:
    result = run(*status)
    assert result.exit_code == 2
    assert "state.db: set --state-url or TAILSPAN_STATE_URL to this database" in result.stderr


def test_a_command_that_shows_only_telemetry_also_needs_the_state_url(
    url: str, state_url: str
) -> None:
    words = ("requests", "--database", url, "--from", "0", "--to", "2000000000")
    assert run(*words).exit_code == 2
    assert run(*words, "--state-url", state_url).exit_code == 0


def test_doctor_checks_the_state_database(url: str, state_url: str, free_port: int) -> None:
    ports = [f"--{part}-port={free_port}" for part in ("grpc", "http", "metrics", "explorer")]
    words = ("doctor", "--database", url, *ports)
    assert "state.db belongs to this database" in run(*words, "--state-url", state_url).stdout
    down = run(*words, "--state-url", "postgresql://tailspan:hidden@127.0.0.1:1/state")
    assert down.exit_code == 1
    assert "the state database cannot be read" in down.stdout
    assert "hidden" not in down.output


def test_one_file_cannot_be_both_databases(url: str) -> None:
    open_database(url).dispose()
    result = run("up", "--no-explorer", "--database", url, "--state-url", url)
    assert result.exit_code == 2
    assert "is both the database and the state database; leave --state-url out" in result.stderr
