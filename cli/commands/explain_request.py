"""`tailspan explain --request`."""

import json
import os
from typing import Any, Final

import click
from sqlalchemy import Engine

from alerts.explorer_links import EXPLORER_KEY
from analysis.explain_request import explain_request
from analysis.one_request import find_requests
from cli.render.explanation import of_request

_MAX_LISTED: Final = 5


def request_text(engine: Engine, words: str, form: str) -> str:
    """The explanation of one request, as text or JSON.

    `words` is the request id, the trace id or TRACE/SPAN.

    Raises:
        click.UsageError: no request has this id, or several have it.
    """
    found = explain_request(engine, _the_one(engine, words))
    link = _link(found)
    if form == "json":
        return json.dumps({**found, "link": link}, allow_nan=False)
    return "\n".join([*of_request(found), *([f"Open it: {link}"] if link else [])])


def _the_one(engine: Engine, words: str) -> dict[str, Any]:
    found = find_requests(engine, words)
    if not found:
        raise click.UsageError(
            f"--request {words!r}: no such request in the database;"
            " `tailspan requests` lists their ids"
        )
    if len(found) > 1:
        listed = ", ".join(f"{row['trace_id']}/{row['span_id']}" for row in found[:_MAX_LISTED])
        more = f" and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
        raise click.UsageError(
            f"--request {words!r}: {len(found)} requests have this id; give one of {listed}{more}"
        )
    return found[0]


def _link(found: dict[str, Any]) -> str | None:
    explorer = os.environ.get(EXPLORER_KEY, "").rstrip("/")
    key = f"{found['trace_id']}/{found['span_id']}"
    return f"{explorer}/?page=request&request={key}" if explorer else None
