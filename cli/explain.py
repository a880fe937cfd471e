"""`tailspan explain`: why the tail grew, for whom, because of what, and what to change."""

import json
from typing import Any

import click

from cli import times
from cli.explaining import explained, question_of, request_explained
from cli.explanation_text import of_explanation, of_request
from cli.options import ask, nothing_found, question_options
from diagnosis.explanation import Verdict
from diagnosis.question import Metric
from diagnosis.told import as_json

FOUND = 1
"""Exit status where the tail has grown: it should stop a pipeline."""


@click.command(
    epilog="""\b
Examples:
  tailspan explain
  tailspan explain --last 1h --metric tpot --where model=llama-3-8b
  tailspan explain --from 2026-11-20T10:00Z --to 2026-11-20T10:30Z \\
      --baseline 2026-11-20T09:00Z/2026-11-20T10:00Z --format json
  tailspan explain --request chatcmpl-8f14e45f
"""
)
@question_options
@click.option(
    "--metric",
    type=click.Choice([metric.value for metric in Metric]),
    default=Metric.TTFT.value,
    show_default=True,
    help="Which latency.",
)
@click.option(
    "--baseline",
    metavar="FROM/TO",
    help="What to hold it against, as --from and --to.  [default: the same length just before]",
)
@click.option(
    "--request",
    "request_id",
    metavar="ID",
    help="One request: its parts, and who delayed it; looks at the whole database.",
)
def explain(
    form: str, metric: str, baseline: str | None, request_id: str | None, **asked: Any
) -> None:
    """Say why a latency grew.

    The slowest requests of the window (one in a hundred, or more where there are few) are held
    against the baseline's slowest. What was added to them is divided among causes; each comes
    with the share that it brought about, the interval which that share lies in 95 times in 100,
    the numbers that speak for it, and what to change. Where the tail has not grown, or there
    are too few requests to know, the answer says so.

    Exit status 1: it has grown.
    """
    question = ask(**asked)
    if request_id is not None:
        found = request_explained(question.engine, request_id)
        if found is None:
            raise click.UsageError(
                f"--request {request_id!r}: no such request in the database;"
                " `tailspan requests` lists their ids"
            )
        click.echo(json.dumps(found) if form == "json" else "\n".join(of_request(found)))
        return
    answer = explained(
        question.engine,
        question_of(metric, question.window, _baseline(baseline)),
        question.equals,
    )
    if form == "json":
        click.echo(json.dumps(as_json(answer), allow_nan=False))
    elif not answer.requests:
        click.echo(nothing_found(question), err=True)
    else:
        click.echo("\n".join(of_explanation(answer)))
    if answer.verdict is Verdict.INCIDENT:
        click.get_current_context().exit(FOUND)


def _baseline(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    start, slash, end = given.partition("/")
    try:
        if not slash:
            raise ValueError("it must be FROM/TO")
        found = times.instant_ns(start), times.instant_ns(end)
        if found[0] >= found[1]:
            raise ValueError("it must end after it begins")
    except ValueError as error:
        raise click.UsageError(f"--baseline {given!r}: {error}") from error
    return found
