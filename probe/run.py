"""Run the prober: probes on schedule, and send the results."""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from probe.budget import ProbeBudget, unpriced
from probe.errors import PlanError, ProbeFailure
from probe.plan import ProbePlan
from probe.prices import PriceOf, ProbeTokens, list_price
from probe.protocols import PROTOCOLS
from probe.run_probe import Prober
from probe.schedule import run_forever, run_once, run_until
from probe.sender import ResultSender
from telemetry.probes import Probe

FLUSH_S: Final = 10.0
"""Time limit for sending the remaining results at the end. It is OpenTelemetry's default for one
message (OTEL_EXPORTER_OTLP_TIMEOUT)."""


def check_keys(plan: ProbePlan, environment: Mapping[str, str]) -> None:
    """Raise PlanError if the key of an endpoint cannot be read."""
    for each in plan.endpoints:
        if each.key is not None:
            try:
                each.key.read(environment)
            except ProbeFailure as failure:
                raise PlanError(f"endpoint {each.name}: {failure}") from failure


def check_prices(plan: ProbePlan, price_of: PriceOf = list_price) -> None:
    """Raise PlanError if the budget is only in dollars and the price of an endpoint is unknown."""
    for each in plan.endpoints:
        if unpriced(each, plan.limits, price_of):
            raise PlanError(
                f"budget.usd_per_day: the price of {each.model} at {each.url} (endpoint"
                f" {each.name}) is unknown, so a budget in dollars cannot limit this endpoint; set"
                " budget.tokens_per_day too"
            )


async def run(
    plan: ProbePlan,
    on_result: Callable[[Probe], None],
    stop: asyncio.Event,
    *,
    once: bool,
    state: Path,
    price_of: PriceOf = list_price,
    environment: Mapping[str, str] = os.environ,
    report: Callable[[str], None] = lambda _: None,
) -> ResultSender | None:
    """Probe the endpoints on schedule, and send the results.

    Args:
        stop: ends the probing. Running probes get the outcome `abort`.
        once: probe each endpoint once, without a schedule.
        state: the file with today's spending.
        environment: contains the keys and OpenTelemetry's settings.

    Returns:
        The sender, or None without a `results_url`.

    Raises:
        PlanError: a key, a price, a certificate or the state file cannot be used.
    """
    check_keys(plan, environment)
    check_prices(plan, price_of)
    for each in plan.endpoints:
        # Import the libraries now, so that importing them does not delay the first probe.
        price_of(each, ProbeTokens(1, 1))
        PROTOCOLS[each.kind].decoder()
    sender = None
    if plan.results_url is not None:
        sender = ResultSender(plan.results_url, plan.region, environment, report)

    def keep(result: Probe) -> None:
        if sender is not None:
            sender.offer(result)
        on_result(result)

    with ProbeBudget(plan.limits, price_of, state if plan.limits.any else None) as budget:
        context = ssl.create_default_context()
        prober = Prober(plan.region, budget, price_of, context, environment)
        working: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(stop.wait()),
            asyncio.ensure_future((run_once if once else run_forever)(plan, prober, keep)),
        ]
        if sender is not None:
            working.append(asyncio.ensure_future(sender.run()))
        await run_until(working, asyncio.FIRST_COMPLETED)
    if sender is not None:
        await sender.flush(FLUSH_S)
    return sender
