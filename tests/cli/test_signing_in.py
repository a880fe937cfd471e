"""`--sign-in` and `--base-path`: who may read the pages, and where they are found."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cli.errors import Unreachable
from cli.main import tailspan
from cli.options.sign_in import sign_in_of

pytest.importorskip("authlib", reason="Authlib is not installed: the extra sign-in")

WHOLE = """\
issuer: https://login.example.org
client_id: tailspan
client_secret: S3CRET
url: https://ops.example.org/tail
allow: ["@example.org"]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound one, which no variable names."""
    monkeypatch.delenv("TAILSPAN_SIGN_IN", raising=False)
    path = tmp_path / "sign-in.yaml"
    path.write_text(WHOLE)
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], Mapping[str, str]]]:
    """What `tailspan ui` becomes."""
    seen: list[tuple[Sequence[str], Mapping[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, env: seen.append((command, env)))
    return seen


def run(*words: str) -> Result:
    """Run a verb."""
    return CliRunner().invoke(tailspan, words, catch_exceptions=False)


def test_nobody_is_asked_unless_it_is_said(file: Path) -> None:
    """As it was."""
    assert sign_in_of(None, "/a/b/") == (None, "a/b")


def test_the_path_is_that_of_the_address(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the option or by the variable; a path that says otherwise is a mistake."""
    asked, base_path = sign_in_of(file, "")
    assert asked is not None
    assert (asked[1].url, base_path) == ("https://ops.example.org/tail", "tail")
    monkeypatch.setenv("TAILSPAN_SIGN_IN", str(file))
    named, base_path = sign_in_of(None, "tail")
    assert named is not None
    assert (named[0], named[1].url, base_path) == (file, asked[1].url, "tail")
    with pytest.raises(click.UsageError, match=r"--base-path other: url in .* says 'tail'"):
        sign_in_of(file, "other")


@pytest.mark.parametrize("verb", ["ui", "up"])
def test_a_mistake_is_named_by_file_line_and_key(file: Path, verb: str) -> None:
    """Before anything starts, and without the secret."""
    file.write_text(WHOLE.replace("allow: ", "alow: "))
    result = run(verb, "--sign-in", str(file))
    assert result.exit_code == 2
    assert "sign-in.yaml:5: alow: no such key; allowed: issuer, client_id" in result.stderr
    assert "S3CRET" not in result.stderr
    assert "--sign-in: " in run(verb, "--sign-in", str(file.with_name("none.yaml"))).stderr


def test_pages_that_ask_may_be_reached_by_others(
    file: Path, started: list[tuple[Sequence[str], Mapping[str, str]]]
) -> None:
    """And no command line holds the secret."""
    result = run("ui", "--host", "0.0.0.0", "--port", "0", "--sign-in", str(file))
    assert result.exit_code == 0
    assert "https://ops.example.org/tail/, for those whom login.example.org" in result.stdout
    ((command, environment),) = started
    assert "--server.baseUrlPath=tail" in command
    assert environment["TAILSPAN_SIGN_IN"] == str(file)
    assert not any("S3CRET" in word for word in [*command, *environment.values()])


def test_what_is_missing_is_said_with_how_to_have_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Authlib is an extra."""
    monkeypatch.setattr("telemetry.installing.find_spec", lambda _: None)
    with pytest.raises(Unreachable, match=r"--sign-in needs the extra sign-in: pip install"):
        sign_in_of(file, "")
