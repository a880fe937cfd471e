"""`tailspan simulate`: a simulated vLLM fleet that tells a collector of itself."""

import re
import signal
import threading
from types import FrameType

import click

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class _Duration(click.ParamType[float]):
    """Seconds, from `90`, `90s`, `15m` or `1h`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", str(value).strip())
        if found is None:
            self.fail(f"{value!r}; allowed: seconds, or a number with s, m or h, as in 15m")
        return float(found[1]) * _UNITS_S[found[2]]


_EXAMPLES = """\b
Examples:
  tailspan simulate
  tailspan simulate --replicas 4 --rate 8 --incident engine_stall
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
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Servers in the fleet.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Requests/s of each replica.",
)
@click.option("--seed", default=1, show_default=True, help="The same seed, the same traffic.")
@click.option(
    "--backfill",
    type=_Duration(),
    default="60m",
    show_default=True,
    help="How much of the past to send at once, ending now.",
)
@click.option(
    "--duration",
    type=_Duration(),
    default="0",
    show_default=True,
    help="How long to go on; 0 = until stopped.",
)
@click.option(
    "--incident",
    default="prefill_interference",
    show_default=True,
    help="The cause at work, or none.",
)
@click.option(
    "--incident-before",
    type=_Duration(),
    default="8m",
    show_default=True,
    help="How long before now it began (at most the backfill). It stays under way.",
)
@click.option(
    "--severity",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="How hard; 1 is plain to see.",
)
@click.option(
    "--router",
    type=click.Choice(["least_outstanding", "round_robin"]),
    default="least_outstanding",
    show_default=True,
    help="How requests are spread over the replicas.",
)
def simulate(
    endpoint: str,
    replicas: int,
    rate: float,
    seed: int,
    backfill: float,
    duration: float,
    incident: str,
    incident_before: float,
    severity: float,
    router: str,
) -> None:
    """Simulate a vLLM fleet and send what it does to a collector.

    It sends the past, with an incident that is still under way, then goes on live. Everything
    it sends is marked as simulated.
    """
    # OpenTelemetry takes a while to import: only who simulates waits for it.
    from simulator import live
    from simulator.faults import INJECTIONS, Fault
    from simulator.fleet import FleetConfig
    from simulator.workload import Workload

    if incident not in ("none", *INJECTIONS):
        raise click.UsageError(
            f"--incident: {incident!r}; allowed: none, {', '.join(sorted(INJECTIONS))}"
        )
    try:
        faults: tuple[Fault, ...] = ()
        if incident != "none":
            start_s = max(backfill - incident_before, 0.0)
            faults = (Fault(cause=incident, start_s=start_s, severity=severity),)
        plan = live.Plan(
            endpoint=endpoint,
            fleet=FleetConfig(
                replicas=replicas,
                workload=Workload(rate_per_s=rate * max(replicas, 1)),
                faults=faults,
                router="round_robin" if router == "round_robin" else "least_outstanding",
                seed=seed,
            ),
            backfill_s=backfill,
            duration_s=duration or None,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error

    stop = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        live.run(plan, stop, lambda line: click.echo(line, err=True))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
