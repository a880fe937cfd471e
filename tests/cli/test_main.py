import pytest
from click.testing import CliRunner

from cli.main import tailspan


@pytest.mark.parametrize("verb", sorted(tailspan.commands))
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
