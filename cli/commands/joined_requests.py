"""`tailspan requests --joined`."""

import json
from collections.abc import Sequence
from typing import Final

import click

from analysis.joined.as_json import SORTABLE, joined_json, sort_value
from cli.options.question import Selection, nothing_found, silence
from cli.render import text
from cli.render.joined import joined_lines
from store import queries
from store.joined.read import MAX_ROWS, read_joined
from telemetry.joined_request import JoinedRequest

TRUNCATED: Final = (
    f"The window has more than {MAX_ROWS:,} rows; only the newest were joined. Use a shorter"
    " window."
)


def order_of(sort: str) -> str:
    """Check --sort. Raise click.UsageError for an unknown key."""
    key = sort.removeprefix("-")
    if key not in SORTABLE:
        raise click.UsageError(
            f"--sort {sort!r}: unknown key {key!r}; allowed with --joined: {', '.join(SORTABLE)}"
        )
    return sort


def print_joined(selection: Selection, form: str, limit: int | None, sort: str) -> None:
    """Print the joined requests of a range."""
    answer = read_joined(selection.engine, selection.window, selection.equals)
    found = _sorted(answer.requests, sort)[:limit]
    if answer.truncated:
        click.echo(TRUNCATED, err=True)
    if not found:
        click.echo(nothing_joined(selection), err=True)
    elif form == "json":
        for each in found:
            click.echo(json.dumps(joined_json(each), allow_nan=False))
    else:
        if silent := silence(selection.engine, selection.window.to_unix_ns):
            click.echo(silent)
        click.echo(f"Joined requests started {text.span(selection.window)}")
        click.echo(f"{len(found):,} of {len(answer.requests):,}, sorted by {sort}")
        if queries.simulated(selection.engine, selection.window):
            click.echo("simulated data")
        click.echo()
        for line in joined_lines(found):
            click.echo(line)


def _sorted(requests: Sequence[JoinedRequest], sort: str) -> list[JoinedRequest]:
    key = sort.removeprefix("-")
    values = [(sort_value(each, key), each) for each in requests]
    known = [each for each in values if each[0] is not None]
    known.sort(key=lambda each: each[0], reverse=sort.startswith("-"))
    return [each for _, each in known] + [each for value, each in values if value is None]


def nothing_joined(selection: Selection) -> str:
    """Why the range has no joined requests."""
    if queries.request_count(selection.engine, selection.window, equals=selection.equals):
        return (
            f"No joined requests started {text.span(selection.window)}. Requests are joined if an"
            " engine has a KV connector (--kv-transfer-config), and if both engines report the"
            " same trace id or the same request id."
        )
    return nothing_found(selection)
