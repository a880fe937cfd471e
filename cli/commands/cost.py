"""`tailspan cost`."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.options.price_files import own_peaks, prices_of
from cli.options.question import dimensions_of, open_selection, where_option
from cli.options.settings import config_option
from cli.options.shared import (
    database_option,
    format_option,
    objectives_option,
    prices_option,
    time_options,
)
from cli.render import cost as cost_text

if TYPE_CHECKING:
    from analysis.cost import CostAnswer
    from analysis.cost_sides import CostSide
    from cost.bill import Bill
    from cost.bill_lines import BillLine
    from cost.energy import GroupEnergy
    from cost.groups import BillGroup

LABELS: Final = ("tenant", "model", "route", "replica", "lora", "region", "outcome")
DIMENSIONS: Final = (*LABELS, "hour")


@click.command(
    epilog="""\b
Examples:
  tailspan cost
  tailspan cost --last 24h --by tenant
  tailspan cost --last 7d --by model,hour --format json
  tailspan cost --last 24h --where tenant=acme --by route
  tailspan cost --from 2026-11-20T00:00:00Z --to 2026-11-21T00:00:00Z --prices prices.yaml
\b
Example of a price file. Its entries override the built-in prices (cost/prices.yaml):
  devices:
    - match: "NVIDIA H100 80GB HBM3"     # * matches anything; cpu is an engine on a CPU
      usd_per_hour: 2.10                 # of one GPU
      regions: {eu-central-1: 2.35}
  replicas:
    - match: "batch-*"
      usd_per_hour: 9.80                 # of one engine, all its GPUs
  managed:
    - {match: "chat", provider: openrouter, model: qwen/qwen3-32b}
"""
)
@time_options
@click.option(
    "--by",
    default="",
    metavar="LABEL,LABEL",
    help=f"Group the cost of requests by one or more of {', '.join(DIMENSIONS)}.",
)
@where_option
@prices_option
@objectives_option
@format_option("Text, or one JSON object.")
@database_option
@config_option
def cost(
    last: str | None,
    start: str | None,
    end: str | None,
    by: str,
    where: tuple[str, ...],
    prices: Path | None,
    objectives: tuple[Path, ...],
    form: str,
    database: str | None,
) -> None:
    """Print the cost of serving.

    The bill is the price of all engines for the time in which they were up. It is the sum of

    \b
    requests    each request's share of each engine step
    recomputed  work repeated after an eviction
    idle        time between steps
    loading     time from the start of a process until its engine was ready
    unbilled    step time of requests that have not ended, or whose step times were not reported

    Current prices apply, not the stored cost_usd. The cost per 1,000 requests excludes idle time;
    tailspan what-if includes it. The range is widened to whole minutes, or to whole hours if the
    per-minute rollups were deleted (--keep-minutes of tailspan up).

    --where selects the requests to group and to compare with a managed API. Only --where
    replica=NAME restricts the bill.

    For prefill and for decode, the output shows how much of the peak FLOP/s (MFU) and of the peak
    memory bandwidth (MBU) was used. It compares the bill with the price of the same tokens at a
    managed API (genai-prices), and prints the break-even rate. If GPUs report energy, it prints
    energy and CO₂.
    """
    from alerts.errors import AlertsError
    from alerts.openslo.reader import OBJECTIVES, load
    from analysis.cost import CostQuestion, answer_cost

    dimensions = dimensions_of(by, DIMENSIONS, "costs")
    in_force = prices_of(prices)
    try:
        in_force_objectives = load(objectives or [OBJECTIVES]).objectives
    except (AlertsError, FileNotFoundError) as error:
        raise click.UsageError(f"--objectives: {error}") from error
    selection = open_selection(last, start, end, where, database, LABELS)
    question = CostQuestion(
        selection.window,
        in_force,
        dimensions,
        where=selection.equals,
        objectives=in_force_objectives,
        peaks=own_peaks(),
    )
    found = answer_cost(selection.engine, question)
    if form == "json":
        click.echo(json.dumps(as_json(found, selection.equals), allow_nan=False))
    elif found.bill.total is None and not found.bill.unpriced:
        click.echo(cost_text.nothing(selection.engine, selection.window), err=True)
    else:
        for line in cost_text.lines(found, selection.equals):
            click.echo(line)


def as_json(found: "CostAnswer", where: Mapping[str, str | None]) -> dict[str, Any]:
    """The bill as JSON, with null for unknown values."""
    bill = found.bill
    total = bill.total
    return {
        "from": bill.from_unix_ns / 1e9,
        "to": bill.to_unix_ns / 1e9,
        "simulated": found.billing_data.simulated,
        "apportioned": found.billing_data.apportioned,
        "engines_from": found.billing_data.engines_from_unix_ns / 1e9
        if found.billing_data.engines_from_unix_ns > bill.from_unix_ns
        else None,
        "gaps_s": bill.uptime.gaps_s,
        "total": None if total is None else _line(total, named=False),
        "contradicted_s": bill.uptime.contradicted_s,
        "usd_per_hour": bill.usd_per_hour if bill.rates else None,
        "mean_engines": bill.engines if bill.rates else None,
        "rates": [
            {
                "replica": replica,
                "what": rate.what,
                "devices": rate.devices,
                "usd_per_hour": rate.usd_per_hour,
                "source": rate.origin.source,
                "date": rate.origin.date,
            }
            for replica, rates in bill.rates.items()
            for rate in rates
        ],
        "unpriced": [each._asdict() for each in bill.unpriced],
        "by": list(bill.by),
        "groups": [
            _group(group, bill, drawn, managed_usd)
            for group, drawn, managed_usd in zip(
                bill.groups, found.group_energy, found.group_managed_usd, strict=True
            )
        ],
        "lines": [_line(line, named=True) for line in bill.lines],
        "engines": [asdict(each) for each in bill.by_engine],
        "sides": [_side(side) for side in found.sides.sides],
        "undivided_usd": found.sides.undivided_usd,
        "managed": [
            {
                "model": each.model,
                "provider": each.at.provider,
                "managed_model": each.at.model,
                "requests": each.tokens.requests,
                "cost_usd": each.usd,
            }
            for each in found.compared
        ],
        "not_compared": list(found.not_compared),
        "break_even": None
        if found.break_even is None
        else {
            "rps": found.break_even.rps,
            "requests_per_month": found.break_even.requests_per_month,
            "tokens_per_month": found.break_even.tokens_per_month,
            "kept_rps": found.break_even.sustainable.rps,
            "judged_requests": found.break_even.sustainable.requests,
            "reachable": found.break_even.reachable,
        },
        "energy": None
        if found.energy is None
        else {
            "joules": found.energy.joules,
            "idle_joules": found.energy.idle_j,
            "gpu_seconds": found.energy.seen_s,
            "co2_g": found.energy.co2_g,
            "idle_is_fitted": found.energy.fitted,
        },
        "where": dict(where),
        "selected": None
        if found.selected is None
        else {
            "requests": found.selected.requests,
            "cost_usd": found.selected.usd,
            "usd_per_hour": found.selected.usd_per_hour,
        },
    }


def _line(line: "BillLine", *, named: bool) -> dict[str, Any]:
    name = {"replica": line.replica, "hour": line.hour_unix_s} if named else {}
    return {
        **name,
        "bill_usd": line.bill_usd,
        "requests_usd": line.requests_usd,
        "lost_usd": line.lost_usd,
        "wasted_usd": line.wasted_usd,
        "idle_usd": line.idle_usd,
        "loading_usd": line.loading_usd,
        "unbilled_usd": line.unbilled_usd,
        "requests": line.requests,
        "engines": line.engines,
        "wall_s": line.wall_s,
        "busy_s": line.busy_s,
        "priced_by": line.priced_by,
    }


def _side(side: "CostSide") -> dict[str, Any]:
    return {
        "role": side.role,
        "side": side.name,
        "cost_usd": side.usd,
        "busy_s": side.busy_s,
        "flops": side.flops,
        "bytes": side.moved_bytes,
        "mfu": side.mfu,
        "mbu": side.mbu,
    }


def _group(
    group: "BillGroup", bill: "Bill", drawn: "GroupEnergy | None", managed_usd: float | None
) -> dict[str, Any]:
    from analysis.cost import usd_per_hour

    named: dict[str, Any] = dict(zip(bill.by, group.labels, strict=True))
    if "hour" in named:
        named["hour"] = int(named["hour"])
    return {
        **named,
        "requests": group.requests,
        "unpriced_requests": group.unpriced,
        "cost_usd": group.usd,
        "lost_usd": None if group.usd is None else group.lost_usd,
        "wasted_usd": None if group.usd is None else group.wasted_usd,
        "prompt_tokens": group.prompt_tokens,
        "cached_tokens": group.cached_tokens,
        "output_tokens": group.output_tokens,
        "usd_per_1k_input_tokens": group.usd_per_1k_in,
        "usd_per_1k_output_tokens": group.usd_per_1k_out,
        "priced_by": sorted(group.priced_by),
        "joules": None if drawn is None else drawn.joules,
        "co2_g": None if drawn is None else drawn.co2_g,
        "usd_per_hour": usd_per_hour(group.usd, bill),
        "managed_usd": managed_usd,
    }
