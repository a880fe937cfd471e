"""`tailspan requests --joined`."""

import json

import click

from analysis.joined.as_json import SORTABLE, joined_json
from analysis.joined.requests import TRUNCATED_WINDOW, JoinedQuestion, answer_joined
from analysis.requests import count_requests
from analysis.stored_data import is_simulated
from cli.options.question import Selection, nothing_found, silence
from cli.render import text
from cli.render.joined import joined_lines


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
    question = JoinedQuestion(selection.window, selection.equals, sort)
    answer = answer_joined(selection.engine, question)
    found = answer.requests[:limit]
    if answer.truncated:
        click.echo(TRUNCATED_WINDOW, err=True)
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
        if is_simulated(selection.engine, selection.window):
            click.echo("simulated data")
        click.echo()
        for line in joined_lines(found):
            click.echo(line)


def nothing_joined(selection: Selection) -> str:
    """Why the range has no joined requests."""
    if count_requests(selection.engine, selection.window, selection.equals):
        return (
            f"No joined requests started {text.span(selection.window)}. Requests are joined if an"
            " engine has a KV connector (--kv-transfer-config), and if both engines report the"
            " same trace id or the same request id."
        )
    return nothing_found(selection)
