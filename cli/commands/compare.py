"""`tailspan compare`."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click

from cli.options import time_range
from cli.options.question import equals_of, open_selection, question_options
from cli.options.replay_question import replaying
from cli.options.shared import objectives_option
from telemetry.window import Window

METRICS: Final = ("ttft", "tpot", "itl_max", "e2e", "queue")
"""The keys of `analysis.compare.work_terms.METRICS`. The keys are copied, because importing that
module would delay each command."""
WORSE: Final = 1
"""Exit status if the latency is worse."""


@click.command(
    epilog="""\b
Examples:
  tailspan compare --before 2026-11-20T13:00Z/2026-11-20T14:00Z \\
      --after 2026-11-20T14:05Z/2026-11-20T15:00Z
  tailspan compare --metric tpot --quantile p99 --margin 0.1 --format json \\
      --before 1763634000/1763637600 --after 1763638200/1763641800
  tailspan compare --last 30m --before-where replica=blue-0 --after-where replica=green-0
  tailspan compare --last 1h --before-where config=049c6ea6 --after-where config=881f04d0 --fast
  tailspan compare --from 2025-11-20T14:05Z --before-where version=0.31.0 \\
      --after-where version=0.32.0
"""
)
@question_options
@click.option("--before", metavar="FROM/TO", help="The range before the change.")
@click.option("--after", metavar="FROM/TO", help="The range after the change.")
@click.option(
    "--before-where",
    "before_where",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Select the requests before the change by this label, in addition to --where. The label"
    " version is the version of vLLM.",
)
@click.option(
    "--after-where",
    "after_where",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Select the requests after the change by this label, in addition to --where.",
)
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    default="ttft",
    show_default=True,
    help="The latency to compare.",
)
@click.option(
    "--quantile",
    type=click.Choice(["p50", "p95", "p99"]),
    default="p95",
    show_default=True,
    help="The percentile to compare. P99 needs more requests than P95 for a verdict.",
)
@click.option(
    "--margin",
    type=float,
    default=0.05,
    show_default=True,
    metavar="RATIO",
    help="Largest acceptable change: 0.05 is 5 %.",
)
@click.option(
    "--one-look",
    "one_look",
    is_flag=True,
    help="Print a narrower interval, which is valid for a single run of the command.",
)
@click.option("--fast", is_flag=True, help="Do not replay the requests, and omit the total change.")
@objectives_option
def compare(
    form: str,
    before: str | None,
    after: str | None,
    before_where: Sequence[str],
    after_where: Sequence[str],
    metric: str,
    quantile: str,
    margin: float,
    one_look: bool,
    fast: bool,
    objectives: tuple[Path, ...],
    **options: Any,
) -> None:
    """Compare latencies before and after a change, at the same mix and load.

    Compare two ranges (--before, --after), or two sets of requests of one range, such as a canary
    and the rest (--before-where, --after-where).

    The difference between the two percentiles has three parts. Mix: the requests differ. Load:
    other work on the engines differs. Change: the rest. Requests are matched by model, tenant,
    route, adapter and work. Output lengths are not matched, because a change can affect them.

    The verdict is about the change: worse, better, no_worse (within the margin) or undecided. If
    the range after the change begins at a fixed time, you may run the command any number of times:
    the 95 % confidence interval stays valid. If the range moves (--last), it is valid for 20 runs.

    The total change also includes the load that the change itself caused. To compute it, the
    command replays the requests on a model of the server before the change; --fast omits it. If
    tailspan what-if predicted the change, the output compares the prediction with the measurement.

    Exit status 1: the latency is worse.
    """
    from alerts.errors import AlertsError
    from alerts.openslo.reader import OBJECTIVES, load
    from analysis.access.evidence import thresholds_for
    from analysis.compare.answer import answer_compare
    from analysis.compare.as_json import as_json
    from analysis.compare.question import SIDE_LABELS, CompareError, CompareQuestion, CompareSide
    from analysis.compare.verdict import CompareVerdict
    from cli.render.compare import lines

    ranges = [_range(name, each) for name, each in (("--before", before), ("--after", after))]
    if (before is None) != (after is None):
        raise click.UsageError("--before and --after: set both, as FROM/TO")
    if before is not None and any(options[name] for name in ("last", "start", "end")):
        raise click.UsageError("--before and --after exclude --last, --from and --to")
    if before is None and not (before_where and after_where):
        raise click.UsageError(
            "nothing to compare; set --before and --after, or --before-where and --after-where"
        )
    try:
        known = load(objectives or [OBJECTIVES]).objectives
    except (AlertsError, FileNotFoundError) as error:
        raise click.UsageError(f"--objectives: {error}") from error
    selection = open_selection(**options)
    labels = [
        equals_of(where, SIDE_LABELS, option)
        for option, where in (("--before-where", before_where), ("--after-where", after_where))
    ]
    if both := set(selection.equals) & {label for each in labels for label in each}:
        raise click.UsageError(
            f"--where {min(both)}=…: the label also selects the requests before or after the"
            " change; remove it from --where"
        )
    sides = [
        CompareSide(window or selection.window, {**selection.equals, **each})
        for window, each in zip(ranges, labels, strict=True)
    ]
    try:
        compared = thresholds_for(selection.engine, known)
        question = CompareQuestion(
            sides[0], sides[1], metric, quantile, margin, not one_look, compared
        )
        with nullcontext() if fast else replaying(1):
            answer = answer_compare(selection.engine, question, replay=not fast)
    except CompareError as error:
        raise click.UsageError(str(error)) from error
    if form == "json":
        click.echo(json.dumps(as_json(answer), allow_nan=False))
    else:
        click.echo("\n".join(lines(answer)))
    if answer.decision.verdict is CompareVerdict.WORSE:
        click.get_current_context().exit(WORSE)


def _range(option: str, given: str | None) -> Window | None:
    if given is None:
        return None
    try:
        return time_range.from_to(given)
    except ValueError as error:
        raise click.UsageError(f"{option} {given!r}: {error}") from error
