import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

import click
import pytest
from click.testing import CliRunner

from cli import main
from cli.main import COMMANDS, tailspan

SERVERS = ("up", "collect", "ui", "mcp")
"""Commands that run and write logs until Ctrl-C."""


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(tailspan)
    for verb in COMMANDS:
        command = tailspan.get_command(context, verb)
        assert command is not None
        yield verb, command
        for name, each in getattr(command, "commands", {}).items():
            yield f"{verb} {name}", each


@pytest.mark.parametrize(("words", "command"), list(_commands()))
def test_every_command_has_examples_and_prints_json(words: str, command: click.Command) -> None:
    result = CliRunner().invoke(tailspan, [*words.split(), "--help"])
    assert result.exit_code == 0
    assert f"tailspan {words}" in result.output.partition("Examples:")[2]
    if words not in SERVERS and not isinstance(command, click.Group):
        assert "--format [text|json]" in result.output


def test_an_unknown_command_exits_2_with_a_suggestion_if_one_is_similar() -> None:
    for word, suggestion in (("explode", ""), ("stat", " Did you mean stats or starts?")):
        result = CliRunner().invoke(tailspan, [word])
        assert result.exit_code == 2
        assert f"No such command '{word}'.{suggestion}\n" in result.stderr


def test_help_imports_no_command() -> None:
    """Importing all commands takes a second."""
    code = (
        "import sys; from cli.main import tailspan;"
        " tailspan.main(['--help'], standalone_mode=False);"
        " sys.exit(any(each in sys.modules for each in ('numpy', 'sqlalchemy', 'cli.up')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_the_version_is_the_distributions() -> None:
    result = CliRunner().invoke(tailspan, ["--version"])
    assert result.output == f"tailspan, version {metadata.version('tailspan')}\n"


def test_the_module_runs_the_command_without_pandas() -> None:
    code = """
import runpy, sys
sys.argv[1:] = ["--version"]
try:
    runpy.run_module("cli.main", run_name="__main__")
finally:
    import pyarrow as pa
    pa.array([1])
    print("pandas" in sys.modules)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    version = f"tailspan, version {metadata.version('tailspan')}\n"
    assert done.stdout == f"{version}False\n", done.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("up", "--max-body", "nan"), "--max-body"),
        (("up", "--max-rate", "nan"), "--max-rate"),
        (("up", "--scrape-every", "nan"), "--scrape-every"),
        (("simulate", "--truth", "/nowhere/x", "--duration", "1s"), "--truth"),
        (("requests", "--limit", "9223372036854775808"), "--limit"),
        (("requests", "--to", "9999-12-31"), "--to"),
        (("requests", "--where", "outcome=foo"), "outcome"),
        (("config", ""), "fingerprint"),
        (("explain", "--baseline", "100/300", "--from", "200", "--to", "400"), "--baseline"),
        (("explain", "--objectives", "/nowhere"), "--objectives"),
        (("slo", "rules", "--selector", 'slo="x"'), "--selector"),
    ],
)
def test_an_impossible_value_is_named(
    words: tuple[str, ...], named: str, fill: Callable[..., None], url: str
) -> None:
    fill()
    has_none = ("up", "simulate", "slo")
    database = () if words[0] in has_none else ("--database", url)
    result = CliRunner().invoke(tailspan, [*words, *database])
    assert result.exit_code == 2, result.output
    assert named in result.stderr
    assert "Traceback" not in result.output


def test_ctrl_c_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may also arrive while a command is imported."""

    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "import_module", interrupted)
    result = CliRunner().invoke(tailspan, ["stats"])
    assert result.exit_code == 130
    assert result.stderr.endswith("Interrupted.\n")
