import json
from typing import Any

from click.testing import CliRunner, Result
from sqlalchemy import Engine

from cli.main import tailspan

START_S = 1_763_634_000
WINDOW = ("--from", str(START_S), "--to", str(START_S + 600))


def printed(engine: Engine, *words: str) -> str:
    """Return a command's output on the first ten minutes of a database."""
    result = CliRunner().invoke(
        tailspan, [*words, *WINDOW, "--database", str(engine.url)], catch_exceptions=False
    )
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def objects(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]
