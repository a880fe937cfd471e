import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.counters import Counters
from collector.intake import Intake, Step
from collector.limits.sender_limits import CollectorLimits
from collector.otlp.message_reader import LocalReader
from collector.rows.pricing import MessagePricing
from collector.signals import LOGS, TRACES
from collector.testing import MemorySink
from cost.pricefile import parse_prices
from cost.pricing import Pricing
from telemetry.requests import PricedBy

PRICES = parse_prices("devices: [{match: '*H100*', usd_per_hour: 3.6}]", "mine")


def test_a_request_has_its_cost_once_its_engines_device_is_known(
    trace_message: Callable[..., ExportTraceServiceRequest],
    events_message: Callable[..., Any],
    now_unix_ns: int,
) -> None:
    """The request uses 0.3 s of two GPUs at $0.001 per second each."""
    sink = MemorySink()

    async def receive() -> None:
        intake = Intake(
            sink,
            [],
            Counters(),
            lambda: now_unix_ns,
            CollectorLimits(),
            LocalReader(),
            steps=[MessagePricing(Pricing(PRICES))],
        )
        await intake.receive(TRACES, trace_message().SerializeToString(), peer="here")
        await intake.receive(LOGS, events_message().SerializeToString(), peer="here")
        await intake.receive(TRACES, trace_message().SerializeToString(), peer="here")
        await intake.stop(1)

    asyncio.run(receive())
    assert [row.cost_usd for row in sink.requests] == [None, pytest.approx(0.3 * 2 * 0.001)]
    assert [row.priced_by for row in sink.requests] == [None, PricedBy.LEDGER]


def test_a_fault_in_pricing_loses_no_request(
    trace_message: Callable[..., ExportTraceServiceRequest],
    now_unix_ns: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = MemorySink()
    seen: list[int] = []

    class Broken(Pricing):
        def update(self, *_: Any, **__: Any) -> None:
            raise ZeroDivisionError

    async def receive() -> Intake:
        steps: list[Step] = [
            MessagePricing(Broken(PRICES)),
            lambda batch, _: seen.append(len(batch.requests)),
        ]
        intake = Intake(
            sink, [], Counters(), lambda: now_unix_ns, CollectorLimits(), LocalReader(), steps=steps
        )
        await intake.receive(TRACES, trace_message().SerializeToString(), peer="here")
        await intake.stop(5)
        return intake

    intake = asyncio.run(receive())
    assert [row.cost_usd for row in sink.requests] == [None]
    assert seen == [1]
    assert (intake.enriching.failures, intake.enriching.problem) == (1, "ZeroDivisionError")
    assert "MessagePricing failed" in caplog.text
