"""`tailspan stats --joined`."""

import json
from collections.abc import Sequence
from typing import Literal

import click

from analysis.joined.requests import TRUNCATED_WINDOW
from analysis.joined.stats import answer_joined_stats
from analysis.stats import StatsQuestion
from cli.commands.joined_requests import nothing_joined
from cli.options.question import Selection, silence
from cli.render import text
from cli.render.joined_stats import stats_lines


def print_joined_stats(
    selection: Selection,
    form: str,
    by: Sequence[str],
    precision: Literal["auto", "exact", "sketch"],
) -> None:
    """Print the statistics of joined requests.

    Raises:
        click.UsageError: `precision` is `sketch`.
    """
    try:
        found = answer_joined_stats(
            selection.engine, StatsQuestion(selection.window, selection.equals, by, precision)
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if found.truncated:
        click.echo(TRUNCATED_WINDOW, err=True)
    if not found.groups:
        click.echo(nothing_joined(selection), err=True)
    elif form == "json":
        for group in found.groups:
            about = {"precision": "exact", "truncated": found.truncated}
            click.echo(json.dumps({**group, **about}, allow_nan=False))
    else:
        if silent := silence(selection.engine, selection.window.to_unix_ns):
            click.echo(silent)
        click.echo(f"Joined requests started {text.span(found.window)}")
        if found.simulated:
            click.echo("simulated data")
        for line in stats_lines(found.groups, by):
            click.echo(line)
