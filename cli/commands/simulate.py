"""`tailspan simulate`."""

import json
import signal
import threading
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from cli.options.credentials import check_otlp_headers, insecure_credentials_option
from cli.options.durations import Duration
from cli.options.faults import json_lines, lines, parse
from cli.options.numbers import FiniteRange, WholeRange
from cli.options.shared import format_option

if TYPE_CHECKING:
    from simulator.fleet_config import Router

_EXAMPLES = """\b
Examples:
  tailspan simulate
  tailspan simulate --replicas 4 --rate 8 --incident engine_stall
  tailspan simulate --fault gpu_throttling:0.5@40m --fault tenant_flood@50m+5m --truth truth.jsonl
  tailspan simulate --trace requests.csv --router cache_aware --fault kv_cache_exhausted@20m
  tailspan simulate --replicas 4 --prefill 2 --incident kv_transfer
  tailspan simulate --incident none --backfill 0 --duration 5m
  tailspan simulate --endpoint http://127.0.0.1:4318 --backfill 2h --incident-before 30m
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--endpoint",
    default="http://127.0.0.1:4318",
    show_default=True,
    help="Base address of an OTLP/HTTP collector.",
)
@click.option(
    "--replicas",
    type=WholeRange(min=1),
    default=2,
    show_default=True,
    help="Number of servers in the fleet.",
)
@click.option(
    "--prefill",
    "prefill_replicas",
    type=WholeRange(min=0),
    default=0,
    metavar="N",
    show_default=True,
    help="Number of servers that only do the prefill; the others then only decode. With 0, each"
    " server does both.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Requests per second and replica.",
)
@click.option(
    "--seed",
    default=1,
    show_default=True,
    help="Random seed. The same seed produces the same traffic.",
)
@click.option(
    "--backfill",
    type=Duration(zero=True),
    default="60m",
    metavar="DURATION",
    show_default=True,
    help="Length of the simulated past, which is sent first.",
)
@click.option(
    "--duration",
    type=Duration(zero=True),
    default="0",
    metavar="DURATION",
    show_default=True,
    help=(
        "Duration for which live requests are generated. The command then ends when all data is"
        " delivered. With 0, it runs until it is stopped."
    ),
)
@click.option(
    "--incident",
    default=None,
    help="The fault to simulate, or none.  [default: prefill_interference, or kv_transfer with"
    " --prefill; none if --fault or --trace is given]",
)
@click.option(
    "--incident-before",
    type=Duration(zero=True),
    default="8m",
    metavar="DURATION",
    show_default=True,
    help="How long ago the fault of --incident began (at most the backfill).",
)
@click.option(
    "--severity",
    type=FiniteRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Severity of the fault of --incident. Severity 1 is easy to see.",
)
@click.option(
    "--router",
    type=click.Choice(["least_outstanding", "round_robin", "cache_aware"]),
    default="least_outstanding",
    show_default=True,
    help="How requests are distributed over the replicas.",
)
@click.option(
    "--fault",
    "fault_words",
    multiple=True,
    metavar="CAUSE[:SEVERITY][@START][+DURATION]",
    help="Another fault: cause, severity, start (after the beginning of the simulated past), and"
    " duration. May be repeated.  [default: severity 1, start as --incident-before, no end]",
)
@click.option("--list-faults", is_flag=True, help="List the causes and exit.")
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replay a trace: JSON lines as written by tailspan trace export, or a CSV file with the"
    " columns TIMESTAMP, ContextTokens, GeneratedTokens. Requests with more than 32,768 tokens fail"
    " with status 400.",
)
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the simulated faults to this file, one JSON object per line.",
)
@format_option("Format of the summary and of --list-faults: text, or JSON on standard output.")
@insecure_credentials_option
def simulate(
    endpoint: str,
    replicas: int,
    prefill_replicas: int,
    rate: float,
    seed: int,
    backfill: int,
    duration: int,
    incident: str | None,
    incident_before: int,
    severity: float,
    router: "Router",
    fault_words: tuple[str, ...],
    list_faults: bool,
    trace: Path | None,
    truth: Path | None,
    form: str,
    insecure_credentials: bool,
) -> None:
    """Simulate a vLLM fleet and send its telemetry to a collector.

    The command first sends a simulated past with an open incident, and then live data. All data is
    marked as simulated. The same seed and options produce the same requests.

    If the collector requires a token, set it in OTEL_EXPORTER_OTLP_HEADERS.

    With --duration, the exit status is 2 if the collector accepts no data for 60 s, if it rejects
    data, or if Ctrl-C ends the command before all data is delivered.
    """
    # Importing OpenTelemetry is slow.
    from replay.trace_file import read_trace, trace_rows
    from simulator import live
    from simulator.fault import CAUSES, SimulatedFault
    from simulator.fleet_config import FleetConfig
    from simulator.workload import Workload

    if list_faults:
        for line in json_lines() if form == "json" else lines():
            click.echo(line)
        return
    check_otlp_headers("--endpoint", endpoint, insecure_credentials)
    if incident is None:
        usual = "kv_transfer" if prefill_replicas else "prefill_interference"
        incident = "none" if fault_words or trace else usual
    if incident not in ("none", *CAUSES):
        raise click.UsageError(
            f"--incident: {incident!r}; allowed: none, {', '.join(sorted(CAUSES))}"
        )
    start_s = max(backfill - incident_before, 0) / 1e9
    try:
        faults = [parse(words, start_s) for words in fault_words]
        if incident != "none":
            faults.append(SimulatedFault(cause=incident, start_s=start_s, severity=severity))
        workload = (
            Workload(rate_per_s=rate * replicas)
            if trace is None
            else Workload.replay(trace_rows(read_trace(trace)))
        )
        plan = live.SimulationPlan(
            endpoint=endpoint,
            fleet=FleetConfig(
                replicas=replicas,
                prefill_replicas=prefill_replicas,
                workload=workload,
                faults=tuple(faults),
                router=router,
                seed=seed,
            ),
            backfill_s=backfill / 1e9,
            duration_s=duration / 1e9 or None,
            truth=truth,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error

    if truth is not None:
        try:
            truth.touch()
        except OSError as error:
            raise click.UsageError(f"--truth {truth}: {error.strerror}") from error
    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        sent = live.run(plan, stop, lambda line: click.echo(line, err=True))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if form == "json":
        click.echo(json.dumps({**asdict(sent), "all_delivered": sent.all_delivered}))
    if plan.duration_s is not None and not sent.all_delivered:
        raise click.exceptions.Exit(2)
