import asyncio
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from sqlalchemy import Engine

from alerts.notify.channels import Channel, ReceiverType
from alerts.notify.configuration import Configuration
from alerts.openslo.reader import OBJECTIVES, load
from alerts.secrets import Secret
from collector.errors import ListenError
from server import children, http_check
from server.children import ChildError
from server.stack import MAX_NAMED, UNNAMED_SERVER, KnownReplicas, Ports, Stack
from store import dialects
from store.alerting.notifications import read_notifications
from store.connections import writing
from store.queries import request_count
from store.rollups.names import EXPORTED_TENANT
from store.rollups.tables import NAMES
from telemetry.corroborated_time import CorroboratedClock
from telemetry.requests import RequestTimeline, Source
from telemetry.window import Window

FREE = Ports(0, 0, 0, 0)
DELIVERED = 'tailspan_notification_attempts_total{channel="hook",result="delivered"} 1'
EVER = Window(0, 2**63 - 1)


def test_the_stack_serves_metrics_and_the_api_only_while_it_runs(
    engine: Engine, url: str, fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> None:
    fill(request_row(1, source=Source.SIMULATOR), request_row(2))

    async def run() -> list[int]:
        async with Stack(engine, url, "127.0.0.1", FREE, explorer=False) as stack:
            assert stack.forgotten_rows == 1, "an earlier simulation is deleted"
            root = stack.metrics_url.removesuffix("/metrics")
            async with httpx.AsyncClient(timeout=100) as client:
                assert (await client.get(f"{root}/readyz")).status_code == 200
                answer = await client.get(f"{root}/api/v1/stats")
                assert (answer.status_code, answer.json()) == (200, [])
                assert "/api/v1/openapi.json" in (await client.get(f"{root}/")).text
            return [stack.collector.grpc_port, stack.collector.http_port, stack.metrics.port]

    for port in asyncio.run(run()):
        socket.create_server(("127.0.0.1", port)).close()
    assert request_count(engine, EVER) == 1


def test_a_clock_that_jumps_is_reported_and_not_followed(engine: Engine, url: str) -> None:
    """The JSON API is disabled."""
    jump_ns = 0
    clock = CorroboratedClock(lambda: time.time_ns() + jump_ns)

    async def run() -> str:
        nonlocal jump_ns
        async with (
            Stack(engine, url, "127.0.0.1", FREE, explorer=False, clock=clock, api=None) as stack,
            httpx.AsyncClient(timeout=100) as client,
        ):
            jump_ns = 8 * 86_400 * 10**9
            root = stack.metrics_url.removesuffix("/metrics")
            assert (await client.get(f"{root}/api/v1/stats")).status_code == 404
            assert "openapi" not in (await client.get(f"{root}/")).text
            return (await client.get(stack.metrics_url)).text

    text = asyncio.run(run())
    (jumped,) = re.findall(r"^tailspan_clock_jump_seconds (.+)$", text, re.MULTILINE)
    assert float(jumped) == pytest.approx(691_200, abs=1)
    assert abs(clock() - time.time_ns()) < 10**9


def test_the_tenants_that_all_collectors_name_are_named(engine: Engine, url: str) -> None:
    row = {"label": EXPORTED_TENANT, "value": "acme", "owner": "", "hours": 1, "newest_hour": 0}
    with writing(engine) as connection:
        rows = [
            {**row, "named_from_unix_s": 0},
            {**row, "value": "waits", "named_from_unix_s": None},
            {**row, "label": "tenant", "value": "only-in-rollups", "named_from_unix_s": 0},
        ]
        dialects.of(engine).upsert(connection, NAMES, rows)

    async def run() -> list[str]:
        async with (
            Stack(engine, url, "127.0.0.1", FREE, explorer=False) as stack,
            httpx.AsyncClient(timeout=100) as client,
        ):
            for _ in range(300):
                text = (await client.get(stack.metrics_url)).text
                named = re.findall(r"^tailspan_tenant_named_since_seconds.*$", text, re.MULTILINE)
                if named:
                    return named
                await asyncio.sleep(0.1)
        return []

    assert asyncio.run(run()) == ['tailspan_tenant_named_since_seconds{tenant="acme"} 0.0']


def test_a_taken_port_is_named_with_its_option_and_nothing_is_changed(
    engine: Engine, url: str, fill: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> None:
    fill(request_row(source=Source.SIMULATOR))

    async def run(part: str, port: int) -> None:
        stack = Stack(engine, url, "127.0.0.1", replace(FREE, **{part: port}), simulate=True)
        with pytest.raises(ListenError, match=f"port {port}: .* taken .* --{part}-port"):
            await stack.__aenter__()
        assert stack.children == []

    with socket.create_server(("127.0.0.1", 0)) as holder:
        for part in ("grpc", "http", "metrics", "explorer"):
            asyncio.run(run(part, holder.getsockname()[1]))
    assert request_count(engine, EVER) == 1


@pytest.mark.parametrize("host", ["a..b", "nowhere.invalid", "203.0.113.1"])
def test_a_foreign_address_is_named_with_its_option(engine: Engine, url: str, host: str) -> None:
    async def run() -> None:
        with pytest.raises(ListenError, match=r"cannot listen on .* choose another with --host"):
            await Stack(engine, url, host, FREE).__aenter__()

    asyncio.run(run())


def test_a_failed_child_stops_all(
    engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise ChildError("no more processes")

    monkeypatch.setattr(children, "start", refuse)

    async def run() -> int:
        stack = Stack(engine, url, "127.0.0.1", FREE)
        with pytest.raises(ChildError):
            await stack.__aenter__()
        return stack.collector.http_port

    socket.create_server(("127.0.0.1", asyncio.run(run()))).close()


def test_a_server_is_news_once(request_row: Callable[..., RequestTimeline]) -> None:
    async def run() -> None:
        arrivals = KnownReplicas()
        arrivals.on_stored([request_row(replica="a"), request_row()], [])
        assert arrivals.news.is_set()
        assert arrivals.replicas == {"a", UNNAMED_SERVER}
        arrivals.news.clear()
        arrivals.on_stored([request_row(replica="a")], [])
        assert not arrivals.news.is_set()
        assert arrivals.requests == 3

    asyncio.run(run())


def test_invented_names_do_not_fill_the_memory(request_row: Callable[..., RequestTimeline]) -> None:
    async def run() -> None:
        arrivals = KnownReplicas()
        arrivals.on_stored([request_row(replica=f"r{n}") for n in range(1_000)], [])
        arrivals.on_stored([request_row(replica="one more")], [])
        assert len(arrivals.replicas) == MAX_NAMED
        assert arrivals.requests == 1_001

    asyncio.run(run())


def test_a_burn_is_delivered_and_counted(
    engine: Engine,
    url: str,
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    stranger: Callable[..., str],
    http_answer: Callable[..., bytes],
) -> None:
    now_s = int(time.time())
    fill(
        *(
            request_row(
                n,
                received_unix_ns=(now_s - 5 * n) * 10**9,
                ttft_s=2.0,
                e2e_s=2.5,
                streamed=True,
                source=Source.INSTRUMENTATION,
            )
            for n in range(720)
        )
    )
    receiver = Secret(stranger(http_answer()))
    configuration = Configuration((Channel("hook", ReceiverType.WEBHOOK, ("page",), receiver),))

    async def run() -> str:
        stack = Stack(
            engine,
            url,
            "127.0.0.1",
            FREE,
            explorer=False,
            objectives=load([OBJECTIVES]).objectives,
            notify=configuration,
        )
        async with stack:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                metrics = await asyncio.to_thread(http_check.get, stack.metrics_url)
                if DELIVERED in metrics.body:
                    return metrics.body
                await asyncio.sleep(0.05)
            return metrics.body

    assert DELIVERED in asyncio.run(run())
    (row,) = read_notifications(engine, "chat")
    assert (row.severity, row.transition, row.state) == ("page", "firing", "delivered")
