"""`tailspan probe`."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.errors import Unreachable
from cli.line_printer import LinePrinter
from cli.options.credentials import check_otlp_headers, insecure_credentials_option
from cli.options.extras import check_extra
from cli.options.formats import format_option

if TYPE_CHECKING:  # a slow import
    from probe.plan import ProbePlan
    from probe.sender import ResultSender
    from telemetry.probes import Probe

EXAMPLES = """\b
Examples:
  tailspan probe probes.yaml
  tailspan probe probes.yaml --once
  tailspan probe probes.yaml --once --format json
  tailspan probe probes.yaml --state /var/lib/tailspan/probe.json
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--once",
    is_flag=True,
    help="Probe each endpoint once, then exit: 1 if a probe failed, else 0.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    show_default="in $XDG_STATE_HOME/tailspan",
    help="File that stores how much of today's budget is spent.",
)
@format_option("A line for each probe, or one JSON object per probe and line.")
@insecure_credentials_option
def probe(
    file: Path, once: bool, state: Path | None, form: str, insecure_credentials: bool
) -> None:
    """Send small streamed requests to the endpoints in FILE, and print their latencies.

    Run it near users, in each region. Each endpoint is probed at fixed instants, without retries,
    and within the daily budget in FILE. If FILE has an `endpoint`, the results are also sent to
    that collector.
    """
    check_extra("h11", "probe", "tailspan probe")
    from probe.errors import PlanError
    from probe.plan_file import read_plan
    from probe.state_file import default_state_file

    try:
        plan = read_plan(file, insecure_credentials=insecure_credentials)
        if any(each.kind == "bedrock" for each in plan.endpoints):
            check_extra("botocore", "probe", "an endpoint of the kind bedrock")
        if plan.results_url is not None:
            check_otlp_headers("endpoint", plan.results_url, insecure_credentials)
        failed, sender = asyncio.run(
            _run(plan, state or default_state_file(file, os.environ), form, once=once)
        )
    except PlanError as error:
        raise Unreachable(str(error)) from error
    if sender is not None and (sender.waiting or sender.dropped):
        unsent = sender.waiting + sender.dropped
        click.echo(
            f"{unsent:,} results did not reach {sender.url}: {sender.trouble or 'refused'}",
            err=True,
        )
    if once and failed:
        raise click.exceptions.Exit(1)


async def _run(
    plan: "ProbePlan", state: Path, form: str, *, once: bool
) -> "tuple[int, ResultSender | None]":
    from cli.render.probe import text_line
    from probe.results_json import json_line
    from probe.run import run
    from server.signals import stop_on_signals

    failed = 0
    stop, loop = stop_on_signals(lambda: None), asyncio.get_running_loop()
    printer = LinePrinter(lambda: loop.call_soon_threadsafe(stop.set))

    def show(result: "Probe") -> None:
        nonlocal failed
        failed += not result.outcome.succeeded
        printer.print(json_line(result) if form == "json" else text_line(result))

    try:
        sender = await run(
            plan,
            show,
            stop,
            once=once,
            state=state,
            report=lambda sentence: click.echo(sentence, err=True),
        )
    finally:
        await asyncio.to_thread(printer.close)
    if printer.dropped:
        click.echo(f"{printer.dropped:,} lines were not printed: the output is slow", err=True)
    return failed, sender
