"""Run `tailspan up` in the foreground, and print messages to the terminal."""

import asyncio
import gc
import logging
import os
import sys
from urllib.parse import urlsplit

import click

from cli.options.addresses import is_loopback
from cli.render.gpus import state_sentence
from cli.render.text import label
from server import http_check
from server.children import Child
from server.endpoint_access import EndpointAccess
from server.signals import stop_on_signals
from server.stack import MAX_NAMED, Stack
from telemetry.installing import install_plugin

NO_TELEMETRY_S = 20.0

_log = logging.getLogger(__name__)


async def run(stack: Stack, *, vllm: str | None) -> None:
    """Run until Ctrl-C, SIGTERM or SIGHUP. The system sends SIGHUP when the terminal is closed.

    `vllm` is the base URL of the server to watch.

    Raises:
        ListenError, ChildError: a component cannot be started.
    """
    stop = stop_on_signals(stack.kill_children)
    async with stack:
        _exclude_imports_from_gc()
        talking = [
            asyncio.create_task(_report_arrivals(stack, vllm)),
            asyncio.create_task(_announce_gpus(stack)),
            asyncio.create_task(_watch(stack)),
        ]
        for task in talking:
            task.add_done_callback(_log_defect)
        await stop.wait()
        for task in talking:
            task.cancel()
        ends = await asyncio.gather(*talking, return_exceptions=True)
        print_line("\nStopping …")
    print_line(
        f"Stopped. {stack.arrivals.requests:,} requests arrived. The data is in {stack.database}."
    )
    for end in ends:
        if isinstance(end, Exception):  # a defect; the collector has not stopped
            raise end


def _log_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error(
            "a part of tailspan up that prints messages failed; the collector still runs",
            exc_info=error,
        )


def _exclude_imports_from_gc() -> None:
    """Exclude imported objects from garbage collection, and collect less often.

    With the default threshold of 700 new objects, collection took a tenth of the time to process a
    request. Requests create no reference cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line. If the terminal is closed, discard the line: the collector continues."""
    try:
        click.echo(text, err=err)
    except OSError:  # the terminal or the pipe is closed; discard the buffer
        stream = sys.stderr if err else sys.stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


async def _report_arrivals(stack: Stack, vllm: str | None) -> None:
    await _announce(stack, vllm)
    arrivals = stack.arrivals
    if vllm:
        try:
            async with asyncio.timeout(NO_TELEMETRY_S):
                await arrivals.news.wait()
        except TimeoutError:
            print_line(f"No telemetry has arrived from {vllm} yet. {_how_to_connect(stack)}")
    announced: set[str] = set()
    while len(announced) < MAX_NAMED:
        await arrivals.news.wait()
        arrivals.news.clear()
        for replica in sorted(arrivals.replicas - announced):
            print_line(f"Telemetry arrives from {label(replica)}.")
        announced = set(arrivals.replicas)
    print_line("Messages about further servers are omitted.")


async def _announce_gpus(stack: Stack) -> None:
    while stack.gpu_sampler is not None:
        states = stack.gpu_sampler.report()
        if any(state.up is not None for state in states):
            print_line(state_sentence(states))
            return
        await asyncio.sleep(1)


async def _announce(stack: Stack, vllm: str | None) -> None:
    if stack.forgotten_rows:
        print_line(f"Removed an earlier simulation ({stack.forgotten_rows:,} rows).")
    lines = [
        f"  Metrics    {stack.metrics_url}",
        f"  OTLP       {stack.grpc_endpoint} (gRPC), {stack.http_endpoint} (HTTP)",
        f"  Database   {stack.database}",
    ]
    if stack.state is not None:
        lines.append(f"  State      {stack.state}")
    if stack.explorer is not None:
        print_line("Starting …")
        lines.insert(0, f"  Explorer   {await _explorer(stack, stack.explorer)}")
    heading = "Tailspan is up."
    if stack.simulate:
        heading += " The fleet is simulated: no number comes from a real server."
    print_line("\n".join([heading, "", *lines, ""]))
    if (url := stack.notification_url) and is_loopback(urlsplit(url).hostname or ""):
        print_line(
            f"Notifications link to {url}, which works only on this machine. Set explorer_url in"
            " the file of --notify, or TAILSPAN_EXPLORER_URL."
        )
    if vllm:
        print_line(await asyncio.to_thread(_first_look, stack, vllm))
    elif not stack.simulate:
        print_line(_how_to_connect(stack))
        if stack.explorer is not None:  # hint for new users, who run the explorer
            print_line(
                "Without a GPU, run `make vllm` for a real vLLM on the CPU, or `tailspan up"
                " --simulate`."
            )
    print_line("Ctrl-C stops it.")


async def _explorer(stack: Stack, explorer: Child) -> str:
    if await stack.explorer_answers():
        return stack.explorer_url
    if explorer.running:
        return f"{stack.explorer_url} (not ready yet; its log is {explorer.log})"
    return f"did not start; see {explorer.log}"


async def _watch(stack: Stack) -> None:
    while True:
        child, status = await stack.child_ends.get()
        print_line(
            f"The {child.name} ended with status {status} and is restarted. All other components"
            f" still run. The end of its log ({child.log}):\n{child.last_words()}",
            err=True,
        )


def _first_look(stack: Stack, vllm: str) -> str:
    health = http_check.get(f"{vllm}/health")
    if health.ok:
        seen = f"{vllm} is healthy; waiting for its telemetry."
    else:
        seen = f"{vllm} does not respond to its health check ({health.why}); still waiting for it."
    if is_loopback(stack.host) and not is_loopback(urlsplit(vllm).hostname or ""):
        seen += (
            f"\nIf vLLM runs on another machine, it cannot reach {stack.host} here:"
            " start with --host 0.0.0.0, tokens and TLS (tailspan up --help)."
        )
    return seen


def _how_to_connect(stack: Stack) -> str:
    return f"""\
To connect a vLLM, install the instrumentation in its environment and start vLLM as usual:

  {install_plugin()}
  export OTEL_EXPORTER_OTLP_ENDPOINT={stack.grpc_endpoint}{_credentials(stack.access)}
  vllm serve MODEL
"""


def _credentials(access: EndpointAccess) -> str:
    exports = ""
    if access.tls:
        exports += "\n  export OTEL_EXPORTER_OTLP_CERTIFICATE=CA.pem   # CA of --tls-cert;"
        exports += " use a host name that is in the certificate"
        if access.tls.client_ca:
            exports += "\n  export OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=CERT.pem"
            exports += "\n  export OTEL_EXPORTER_OTLP_CLIENT_KEY=KEY.pem"
    if access.tokens:
        exports += "\n  export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN"
    return exports
