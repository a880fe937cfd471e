"""`tailspan explain --request`: one request, by any of its names."""

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import click
from sqlalchemy import Engine

from cli.render.explanation import of_request
from diagnosis.inputs.arrow import REQUEST_COLUMNS, requests_of
from diagnosis.one_request.account import account
from store.requests.lookup import named
from store.requests.neighbours import neighbours, place_of

EXPLORER_KEY: Final = "TAILSPAN_EXPLORER_URL"
"""Where people find the explorer; only they know by which name."""

_MOST_LISTED: Final = 5


def told(engine: Engine, words: str, form: str) -> str:
    """What to print.

    Args:
        engine: from `open_database`.
        words: as `store.requests.lookup` takes them.
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


def request_explained(engine: Engine, row: Mapping[str, Any]) -> dict[str, Any]:
    """A request's own parts and who delayed it.

    Args:
        engine: from `open_database`.
        row: of `store.requests.lookup`, with the columns of `store.requests.neighbours.OF_REQUEST`.
    """
    table = neighbours(engine, row, [*REQUEST_COLUMNS, "request_id"])
    told = account(requests_of(table), place_of(table, row))
    ids, traces = table["request_id"].to_pylist(), table["trace_id"].to_pylist()
    return {
        "request_id": row["request_id"],
        "trace_id": row["trace_id"],
        "span_id": row["span_id"],
        "replica": row["replica"],
        "received": row["received_unix_ns"] / 1e9,
        "e2e_s": row["e2e_s"],
        "parts": [{"part": part, "seconds": seconds} for part, seconds in told.parts_s.items()],
        "delayed_by": [
            {
                "request_id": ids[each.row],
                "trace_id": traces[each.row],
                "tenant": _text(table["tenant"][each.row].as_py()),
                "prompt_tokens_meanwhile": round(each.tokens),
                "cost_s": each.cost_s,
            }
            for each in told.delayed_by
        ],
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
