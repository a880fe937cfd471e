"""`--sign-in` and `--base-path`: who may read the pages, and their address."""

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
    """Return a valid sign-in file; the variables of its secrets are not set."""
    monkeypatch.delenv("TAILSPAN_SIGN_IN", raising=False)
    path = tmp_path / "sign-in.yaml"
    path.write_text(WHOLE)
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(tailspan, words, catch_exceptions=False)


def test_sign_in_is_off_by_default(file: Path) -> None:
    assert sign_in_of(None, "/a/b/") == (None, "a/b")


def test_the_path_is_that_of_the_address(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, base_path = sign_in_of(file, "")
    assert asked is not None
    assert (asked[1].url, base_path) == ("https://ops.example.org/tail", "tail")
    monkeypatch.setenv("TAILSPAN_SIGN_IN", str(file))
    named, base_path = sign_in_of(None, "tail")
    assert named is not None
    assert (named[0], named[1].url, base_path) == (file, asked[1].url, "tail")
    with pytest.raises(click.UsageError, match=r"--base-path other: the path of url .* is 'tail'"):
        sign_in_of(file, "other")


@pytest.mark.parametrize("verb", ["ui", "up"])
def test_a_mistake_is_reported_with_file_line_and_key(file: Path, verb: str) -> None:
    file.write_text(WHOLE.replace("allow: ", "alow: "))
    result = run(verb, "--sign-in", str(file))
    assert result.exit_code == 2
    assert "sign-in.yaml:5: alow: no such key; allowed: issuer, client_id" in result.stderr
    assert "S3CRET" not in result.stderr
    assert "--sign-in: " in run(verb, "--sign-in", str(file.with_name("none.yaml"))).stderr


def test_pages_with_sign_in_may_listen_on_any_address(
    file: Path, started: list[tuple[Sequence[str], Mapping[str, str]]]
) -> None:
    result = run("ui", "--host", "0.0.0.0", "--port", "0", "--sign-in", str(file))
    assert result.exit_code == 0
    assert (
        "https://ops.example.org/tail/, for readers with an account at login.example.org"
        in result.stdout
    )
    ((command, environment),) = started
    assert "--server.baseUrlPath=tail" in command
    assert environment["TAILSPAN_SIGN_IN"] == str(file)
    assert not any("S3CRET" in word for word in [*command, *environment.values()])


def test_a_missing_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.installing.find_spec", lambda _: None)
    with pytest.raises(Unreachable, match=r"--sign-in needs the extra sign-in: pip install"):
        sign_in_of(file, "")
