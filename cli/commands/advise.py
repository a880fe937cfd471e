"""`tailspan advise`."""

import json
from pathlib import Path
from typing import Any, Final

import click

from cli.options.question import open_selection, question_options
from cli.options.replay_question import replay_question, replaying
from cli.options.shared import objectives_option, prices_option

REFUSED: Final = 1
"""Exit status if the traffic cannot be replayed."""


@click.command(
    epilog="""\b
Examples:
  tailspan advise
  tailspan advise --last 1h --metric ttft
  tailspan advise --where tenant=acme --format json
"""
)
@question_options
@click.option(
    "--metric",
    type=click.Choice(["ttft", "tpot", "itl_max", "e2e", "queue"]),
    default="e2e",
    show_default=True,
    help="The latency to shorten.",
)
@objectives_option
@prices_option
def advise(
    form: str, metric: str, objectives: tuple[Path, ...], prices: Path | None, **options: Any
) -> None:
    """Rank changes by their predicted effect on the recorded traffic.

    The requests of the range are replayed with each change that applies to the engines:
    quantisation, KV cache, batch and chunk sizes, routing, replicas. The effect on P50 and P99 is
    printed with a 95 % interval, with each objective's attainment and the cost. The largest gain
    for its effort comes first. Changes that a replay cannot predict are listed at the end.

    If the arguments of an engine changed in the range, the command uses only requests received at
    least 60 s after the change.

    Exit status 1: the range cannot be replayed, or the replay does not reproduce it.
    """
    from analysis.advice import advise as advised
    from analysis.recorded_traffic import NotReplayableError
    from analysis.what_if import RESAMPLED, read_for
    from cli.render import advice as render
    from replay.edits import Edits

    selection = open_selection(**options)
    question = replay_question(selection, Edits(), objectives, prices)
    try:
        recorded = read_for(selection.engine, question, moves_requests=True)
        with replaying(2 * RESAMPLED) as step:
            found = advised(recorded, question, f"{metric}_s", progress=step)
        refused = found.refused
    except NotReplayableError as error:
        found, refused = None, str(error)
    if form == "json":
        answer = {"refused": refused} if found is None else render.as_json(found)
        click.echo(json.dumps(answer, allow_nan=False))
    elif found is None or refused is not None:
        click.echo(f"No advice: {refused}")
    else:
        click.echo("\n".join(render.lines(found)))
    if refused is not None:
        click.get_current_context().exit(REFUSED)
