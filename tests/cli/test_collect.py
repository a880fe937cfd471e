import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.commands.up import up
from cli.main import tailspan

DAY_NS = 86_400 * 10**9


def run(*words: str) -> Result:
    return CliRunner().invoke(tailspan, words, catch_exceptions=False)


def test_collect_is_up_without_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(up, "callback", lambda **given: seen.update(given))
    result = run("collect", "--grpc-port", "0", "--keep-rows", "3d")
    assert result.exit_code == 0
    assert (seen["no_explorer"], seen["simulate"], seen["vllm"]) == (True, False, None)
    assert (seen["grpc_port"], seen["keep_rows"], seen["http_port"]) == (0, 3 * DAY_NS, 4318)
    assert set(seen) == {option.name for option in up.params if option.expose_value}
    refused = run("collect", "--explorer-port", "1")
    assert refused.exit_code == 2
    assert "No such option" in refused.stderr


def test_the_pages_show_the_database_they_are_given(
    started: list[tuple[Sequence[str], Mapping[str, str]]],
) -> None:
    """Other users can read command lines, so a variable passes the URL, which may contain a
    password."""
    result = run("ui", "--port", "0", "--base-path", "/spans/", "--database", "sqlite:///x.db")
    assert result.exit_code == 0
    ((command, environment),) = started
    assert environment["TAILSPAN_DATABASE_URL"] == "sqlite:///x.db"
    assert "--server.baseUrlPath=spans" in command
    assert not any("x.db" in word for word in command)
    assert "/spans/" in result.stdout


def test_a_port_that_is_taken_is_named(
    started: list[tuple[Sequence[str], Mapping[str, str]]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("ui", "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 2
    assert "--port" in result.stderr
    assert not started


def test_pages_that_others_can_reach_are_asked_for(
    started: list[tuple[Sequence[str], Mapping[str, str]]],
) -> None:
    assert "--insecure-bind" in run("ui", "--host", "0.0.0.0", "--port", "0").stderr
    assert not started
    assert run("ui", "--host", "0.0.0.0", "--port", "0", "--insecure-bind").exit_code == 0
    assert len(started) == 1
