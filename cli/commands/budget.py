"""`tailspan budget`."""

import json
from pathlib import Path
from typing import Any, Final

import click

from analysis.budget.budget_file import PRESETS
from cli.options.question import open_selection, question_options

OVER: Final = 1
"""Exit status if the budget is exceeded."""


@click.command(
    epilog="""\b
Examples:
  tailspan budget --preset chat
  tailspan budget budget.yaml --last 1h --where tenant=acme
  tailspan budget --preset code --format json
"""
)
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, dir_okay=False), metavar="[FILE]"
)
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    help="A built-in budget instead of a file.  [default: chat]",
)
@question_options
def budget(form: str, file: Path | None, preset: str | None, **options: Any) -> None:
    """Show in which layers the slow requests exceed a latency budget.

    A budget file limits a latency, and the time of each layer: application before the model,
    network, front end, queue, prefill, decode, delivery, application after the model. The output
    shows the mean time that the slowest requests (beyond the budget's percentile) spent in each
    layer, and by how much this time must fall.

    The time in the network is known only if a client's span was received. The time in the
    application is known only if its spans follow OpenTelemetry's GenAI conventions. An unknown time
    is not compared with its budget.

    Exit status 1: the percentile exceeds the budget.
    """
    from alerts.errors import DocumentError
    from analysis.budget.answer import BudgetQuestion, BudgetVerdict, answer_budget
    from analysis.budget.as_json import as_json
    from analysis.budget.budget_file import preset as preset_of
    from analysis.budget.budget_file import read_budget
    from cli.render.budget import lines

    if file is not None and preset is not None:
        raise click.UsageError("FILE and --preset exclude each other: use one of them")
    try:
        planned = preset_of(preset or "chat") if file is None else read_budget(file)
    except DocumentError as error:
        raise click.UsageError(str(error)) from error
    selection = open_selection(**options)
    answer = answer_budget(
        selection.engine, BudgetQuestion(planned, selection.window, selection.equals)
    )
    if form == "json":
        click.echo(json.dumps(as_json(answer), allow_nan=False))
    else:
        click.echo("\n".join(lines(answer)))
    if answer.verdict is BudgetVerdict.OVER:
        click.get_current_context().exit(OVER)
