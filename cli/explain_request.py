"""`tailspan explain --request`: one request, by any of its names."""

import json
import os
from typing import Any, Final

import click
from sqlalchemy import Engine

from cli.explaining import request_explained
from cli.explanation_text import of_request
from store.named import named

EXPLORER_KEY: Final = "TAILSPAN_EXPLORER_URL"
"""Where people find the explorer; only they know by which name."""

_MOST_LISTED: Final = 5


def told(engine: Engine, words: str, form: str) -> str:
    """What to print.

    Args:
        engine: from `open_database`.
        words: as `store.named` takes them.
        form: text or json.

    Raises:
        click.UsageError: no request is called so, or several are.
    """
    found = request_explained(engine, _the_one(engine, words))
    link = _link(found)
    if form == "json":
        return json.dumps({**found, "link": link}, allow_nan=False)
    return "\n".join([*of_request(found), *([f"Look at it: {link}"] if link else [])])


def _the_one(engine: Engine, words: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = named(engine, words).to_pylist()
    if not found:
        raise click.UsageError(
            f"--request {words!r}: no such request in the database;"
            " `tailspan requests` lists their ids"
        )
    if len(found) > 1:
        listed = ", ".join(f"{row['trace_id']}/{row['span_id']}" for row in found[:_MOST_LISTED])
        more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
        raise click.UsageError(
            f"--request {words!r}: {len(found)} requests are called so; give one of {listed}{more}"
        )
    return found[0]


def _link(found: dict[str, Any]) -> str | None:
    """Where the explorer shows it; None where nobody said where the explorer is."""
    explorer = os.environ.get(EXPLORER_KEY, "").rstrip("/")
    key = f"{found['trace_id']}/{found['span_id']}"
    return f"{explorer}/?page=request&request={key}" if explorer else None
