import subprocess
import sys
from importlib import metadata

import pytest
from click.testing import CliRunner

from cli.main import COMMANDS, tailspan


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_verb_explains_itself_with_examples(verb: str) -> None:
    """The help says how to say it."""
    result = CliRunner().invoke(tailspan, [verb, "--help"])
    assert result.exit_code == 0
    assert f"  tailspan {verb}" in result.output.partition("Examples:")[2]


def test_a_verb_that_is_not_exits_2() -> None:
    """With its name."""
    result = CliRunner().invoke(tailspan, ["explode"])
    assert result.exit_code == 2
    assert "No such command 'explode'" in result.stderr


def test_help_imports_no_command() -> None:
    """Each brings libraries; all of them take a second."""
    code = (
        "import sys; from cli.main import tailspan;"
        " tailspan.main(['--help'], standalone_mode=False);"
        " sys.exit(any(each in sys.modules for each in ('numpy', 'sqlalchemy', 'cli.up')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_the_version_is_the_distributions() -> None:
    """For a report of a defect."""
    result = CliRunner().invoke(tailspan, ["--version"])
    assert result.output == f"tailspan, version {metadata.version('tailspan')}\n"
