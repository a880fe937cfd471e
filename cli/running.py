"""The life of `tailspan up`: start, say where everything is, tell what is heard, stop."""

import asyncio
import contextlib

import click

from cli import children, probes
from cli.children import Child
from cli.stack import LOGS, Stack, stop_on_signals

HEARD_NOTHING_S = 20.0


async def run(stack: Stack, *, simulate: bool, vllm: str | None) -> None:
    """Run until Ctrl-C or SIGTERM.

    Args:
        stack: what to run.
        simulate: whether to start a simulated fleet, too.
        vllm: base URL of the server to watch, or None.
    """
    stop = stop_on_signals()
    async with stack:
        simulator = await _simulate(stack) if simulate else None
        talking = [
            asyncio.create_task(_tell(stack, simulate, vllm)),
            asyncio.create_task(_watch([stack.explorer, simulator])),
        ]
        try:
            await stop.wait()
        finally:
            for task in talking:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            click.echo("\nStopping …")
            if simulator is not None:
                await simulator.stop()
    click.echo(f"Stopped. {stack.arrivals.requests:,} requests were kept in {stack.database}.")


async def _simulate(stack: Stack) -> Child:
    """The simulator has a process of its own: its backfill would starve the collector."""
    return await children.start(
        "simulator",
        children.ourselves("simulate", "--endpoint", stack.http_endpoint),
        {},
        LOGS / "simulator.log",
    )


async def _tell(stack: Stack, simulate: bool, vllm: str | None) -> None:
    await _announce(stack, simulate, vllm)
    if vllm:
        try:
            await asyncio.wait_for(stack.arrivals.news.wait(), HEARD_NOTHING_S)
        except TimeoutError:
            click.echo(f"Nothing has come from {vllm} yet. {how_to_connect(stack.grpc_endpoint)}")
    told: set[str] = set()
    while True:
        await stack.arrivals.news.wait()
        stack.arrivals.news.clear()
        for replica in sorted(stack.arrivals.replicas - told):
            click.echo(f"Telemetry arrives from {replica}.")
        told = set(stack.arrivals.replicas)


async def _announce(stack: Stack, simulate: bool, vllm: str | None) -> None:
    lines = [
        f"  Metrics    {stack.metrics_url}",
        f"  OTLP       {stack.grpc_endpoint} (gRPC), {stack.http_endpoint} (HTTP)",
        f"  Database   {stack.database}",
    ]
    if stack.explorer is not None:
        answers = await stack.explorer_answers()
        failed = f"did not start; see {stack.explorer.log}"
        lines.insert(0, f"  Explorer   {stack.explorer_url if answers else failed}")
    heading = "Tailspan is up."
    if simulate:
        heading += " The fleet is simulated: no real server stands behind these numbers."
    click.echo("\n".join([heading, "", *lines, ""]))
    if vllm:
        click.echo(await asyncio.to_thread(_first_look, vllm))
    elif not simulate:
        click.echo(how_to_connect(stack.grpc_endpoint))
    click.echo("Ctrl-C stops it.")


async def _watch(watched: list[Child | None]) -> None:
    """Say it when a child ends by itself. What is captured goes on being kept."""
    waits = {asyncio.create_task(child.wait()): child for child in watched if child is not None}
    try:
        while waits:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                child = waits.pop(task)
                click.echo(
                    f"The {child.name} ended with status {task.result()}; the rest goes on."
                    f" Its last words ({child.log}):\n{child.last_words()}",
                    err=True,
                )
    finally:
        for task in waits:
            task.cancel()


def _first_look(vllm: str) -> str:
    health = probes.get(f"{vllm.rstrip('/')}/health")
    if health.ok:
        return f"{vllm} is healthy; waiting for its telemetry."
    why = health.text if health.status is None else f"status {health.status} {health.text}"
    return f"{vllm} does not answer its health check ({why}); waiting for it all the same."


def how_to_connect(endpoint: str) -> str:
    """The lines that connect a server."""
    return f"""\
To connect a vLLM, install the instrumentation beside it and start it as always:

  pip install tailspan-vllm
  export OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}
  vllm serve MODEL

No GPU at hand? `make vllm` starts a real one on the CPU, or `tailspan up --simulate`.
"""
