"""`tailspan outside`."""

import json

import click

from cli.options.question import open_selection
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, time_options
from cli.render import outside as outside_text
from telemetry.probes import LABELS


@click.command(
    epilog="""\b
Examples:
  tailspan outside
  tailspan outside --last 24h --where endpoint=chat
  tailspan outside --last 7d --where region=eu-west --format json
"""
)
@time_options
@click.option(
    "--where",
    multiple=True,
    metavar="LABEL=VALUE",
    help=f"Select probes with this value of {', '.join(LABELS)}. May be repeated: a probe must"
    " match all conditions. LABEL= selects probes without this label.",
)
@format_option("Tables, or one JSON object.")
@database_option
@config_option
def outside(
    last: str | None,
    start: str | None,
    end: str | None,
    where: tuple[str, ...],
    form: str,
    database: str | None,
) -> None:
    """Print the latency, the failures and the cost of endpoints, measured from users' regions.

    The results come from `tailspan probe`, by endpoint, model and region. The latencies include
    only complete answers of the model; `cached` counts answers from a gateway's cache. The total
    wait is the sum of late, dns, connect, tls, server, network, content and transfer. If the server
    did not report the probe too, not_split replaces server and network. P95 and P99 are null for
    too few probes. The prober sends each prompt twice. The prefix cache helps if the whole 95 %
    interval of the median difference (repeated prompt minus new prompt) is below 0.

    If the range has more than 200,000 probes, latencies come from a sample, in which each probe
    stands for `scale` probes.
    """
    from analysis.outside.answer import OutsideQuestion
    from analysis.outside.as_json import as_json
    from analysis.outside.outside import answer_outside

    selection = open_selection(last, start, end, where, database, LABELS)
    found = answer_outside(selection.engine, OutsideQuestion(selection.window, selection.equals))
    if form == "json":
        click.echo(json.dumps(as_json(found), allow_nan=False))
    elif not found.endpoints:
        click.echo(
            outside_text.nothing(selection.engine, selection.window, selection.equals), err=True
        )
    else:
        for line in outside_text.lines(found):
            click.echo(line)
