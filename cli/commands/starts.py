"""`tailspan starts`."""

import json
from typing import Any

import click

from analysis.starts import LABELS, MAX_LISTED, Start, StartsQuestion, answer_starts
from cli.options.question import open_selection
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, time_options
from cli.render import starts as starts_text


@click.command(
    epilog="""\b
Examples:
  tailspan starts --last 24h
  tailspan starts --last 7d --where replica=chat-0
  tailspan starts --last 24h --format json
"""
)
@time_options
@click.option(
    "--where",
    multiple=True,
    metavar="LABEL=VALUE",
    help=f"Select starts with this label value. May be repeated. Labels: {', '.join(LABELS)}.",
)
@format_option("Text, or one JSON object.")
@database_option
@config_option
def starts(
    last: str | None,
    start: str | None,
    end: str | None,
    where: tuple[str, ...],
    form: str,
    database: str | None,
) -> None:
    """Show how long each engine took to start, and where the time went.

    A start lasts from the first process of the server (in a Kubernetes pod with
    TAILSPAN_KUBERNETES=true: from the creation of the pod) until the server was ready. The plugin
    sends the parts after the engine core's first step.

    For a failed start, the output has the parts until the failure, the part that failed, and the
    class of the exception. A server that is killed with SIGKILL, or ends before its engine starts
    workers, reports nothing.

    Kernels are compiled at their first use, so the first request with a new number of prompt tokens
    can be slow. The command lists a range of prompt tokens if its first request was slower than all
    later ones, and there are at least 19 of them.
    """
    selection = open_selection(last, start, end, where, database, LABELS)
    found = answer_starts(selection.engine, StartsQuestion(selection.window, selection.equals))
    if form == "json":
        found_json = {
            "from": found.window.from_unix_ns / 1e9,
            "to": found.window.to_unix_ns / 1e9,
            "number": found.number,
            "most_listed": MAX_LISTED,
            "starts": [as_json(each) for each in found.starts],
        }
        click.echo(json.dumps(found_json, allow_nan=False))
    elif not found.starts:
        click.echo(starts_text.nothing(found.window), err=True)
    else:
        for line in starts_text.lines(found):
            click.echo(line)


def as_json(start: Start) -> dict[str, Any]:
    """A start as JSON, with null for unknown values."""
    cold = start.cold_start
    return {
        "replica": cold.replica,
        "engine": cold.engine,
        "model": cold.model,
        "region": cold.region,
        "version": cold.version,
        "config": cold.config,
        "began": cold.at_unix_ns / 1e9,
        "ready": cold.ready_unix_ns / 1e9 if cold.reached is None else None,
        "failed": None
        if cold.reached is None
        else {"at": cold.ready_unix_ns / 1e9, "part": cold.reached, "reason": cold.failure},
        "seconds": cold.length_s,
        "parts_s": cold.parts_s,
        "advice": start.advice,
        "shapes_compared": start.compared,
        "slow_first_requests": [
            {
                "from_tokens": each.from_tokens,
                "to_tokens": each.to_tokens,
                "prefill_s": each.prefill_s,
                "usual_s": each.usual_s,
                "later_requests": each.later,
            }
            for each in start.first_requests
        ],
        "simulated": cold.simulated,
    }
