"""Runs commands on a database, and reads what they print."""

import json
from typing import Any

from click.testing import CliRunner, Result
from sqlalchemy import Engine

from cli.main import tailspan

START_S = 1_763_634_000
WINDOW = ("--from", str(START_S), "--to", str(START_S + 600))


def printed(engine: Engine, *words: str) -> str:
    """Return the standard output of a command about the first ten minutes of a database."""
    result = CliRunner().invoke(
        tailspan, [*words, *WINDOW, "--database", str(engine.url)], catch_exceptions=False
    )
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def objects(result: Result) -> list[dict[str, Any]]:
    """Return the JSON object of each line."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]
