"""`tailspan doctor`: look at each connection, and say how to mend the ones that fail."""

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import click

from cli import probes

EXAMPLES = """\b
Examples:
  tailspan doctor
  tailspan doctor --vllm http://gpu-host:8000
  tailspan doctor --format json
"""

RECENT_S = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One connection. `ok` is None where it could not be looked at; `mend` says what to do."""

    check: str
    ok: bool | None
    detail: str
    mend: str | None = None


@click.command(epilog=EXAMPLES)
@click.option("--vllm", metavar="URL", help="A vLLM server that should report here.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where `up` listens.")
@click.option("--grpc-port", default=4317, show_default=True)
@click.option("--http-port", default=4318, show_default=True)
@click.option("--metrics-port", default=9464, show_default=True)
@click.option("--explorer-port", default=8501, show_default=True)
@click.option(
    "--database",
    metavar="URL",
    help="A SQLAlchemy URL.  [default: TAILSPAN_DATABASE_URL, else sqlite:///var/tailspan.db]",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def doctor(
    vllm: str | None,
    host: str,
    grpc_port: int,
    http_port: int,
    metrics_port: int,
    explorer_port: int,
    database: str | None,
    form: str,
) -> None:
    """Check each connection and say how to mend it; exit 1 where something is amiss."""
    if vllm and not vllm.startswith(("http://", "https://")):
        raise click.UsageError(f"--vllm {vllm!r}: must begin with http:// or https://")
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: _database(database),
        lambda: _grpc(host, grpc_port),
        lambda: _http(host, http_port),
        lambda: _metrics(host, metrics_port),
        lambda: _explorer(host, explorer_port),
    ]
    if vllm:
        checks.insert(1, lambda: _vllm(vllm.rstrip("/")))
    amiss = False
    for check in checks:
        for finding in check():
            amiss = amiss or finding.ok is False
            click.echo(json.dumps(asdict(finding)) if form == "json" else _text(finding))
    if amiss:
        raise click.exceptions.Exit(1)


def _text(finding: Finding) -> str:
    mark = {True: "ok  ", False: "FAIL", None: "?   "}[finding.ok]
    line = f"{mark}  {finding.check:<10} {finding.detail}"
    return f"{line}\n      {'':<10} → {finding.mend}" if finding.mend else line


def _database(url: str | None) -> Iterator[Finding]:
    from store.database import default_url, open_database
    from store.errors import StoreError
    from store.queries import newest_unix_ns

    try:
        engine = open_database(url or default_url(os.environ), create=False)
        newest = newest_unix_ns(engine)
    except StoreError as error:
        yield Finding("database", False, str(error), "tailspan up makes it and keeps data in it")
        return
    shown = engine.url.render_as_string(hide_password=True)
    yield Finding("database", True, f"{shown} opens and has the schema of this version")
    if newest is None:
        yield Finding(
            "telemetry",
            None,
            "nothing has been received yet",
            "connect a server (tailspan up says how), or try tailspan up --simulate",
        )
        return
    age_s = time.time() - newest / 1e9
    if age_s <= RECENT_S:
        yield Finding("telemetry", True, f"the latest is {max(age_s, 0):.0f} s old")
    else:
        yield Finding(
            "telemetry",
            None,
            f"the latest is {age_s / 60:.0f} min old",
            "is the server up, and OTEL_EXPORTER_OTLP_ENDPOINT set where it starts? Its log"
            " says 'tailspan: capturing' when the instrumentation is loaded",
        )


def _vllm(url: str) -> Iterator[Finding]:
    health = probes.get(f"{url}/health")
    if not health.ok:
        why = health.text if health.status is None else f"status {health.status} {health.text}"
        yield Finding("vllm", False, f"{url}/health: {why}", "start it, or correct --vllm")
        return
    yield Finding("vllm", True, f"{url} is healthy")
    metrics = probes.get(f"{url}/metrics")
    told = "vllm:" in metrics.text
    yield Finding(
        "vllm",
        told,
        f"{url}/metrics {'tells of its engine' if told else 'holds no vllm: series'}",
        None if told else "is this a vLLM, and started without --disable-log-stats?",
    )


def _grpc(host: str, port: int) -> Iterator[Finding]:
    import grpc
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            stub = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            stub.Export(ExportTraceServiceRequest(), timeout=3)
        except grpc.RpcError as error:
            yield Finding(
                "OTLP gRPC",
                False,
                f"{host}:{port}: {error.details()}",
                f"tailspan up listens there; another port: --grpc-port (now {port})",
            )
            return
    yield Finding("OTLP gRPC", True, f"{host}:{port} takes an export")


def _http(host: str, port: int) -> Iterator[Finding]:
    # A GET is not what it serves, and its refusal shows who is there.
    answer = probes.get(f"http://{host}:{port}/v1/traces")
    there = answer.status == 405
    yield Finding(
        "OTLP HTTP",
        there,
        f"{host}:{port} {'is listening' if there else answer.text or answer.status}",
        None if there else f"tailspan up listens there; another port: --http-port (now {port})",
    )


def _metrics(host: str, port: int) -> Iterator[Finding]:
    for path, what in (("healthz", "is alive"), ("readyz", "is ready")):
        answer = probes.get(f"http://{host}:{port}/{path}")
        yield Finding(
            "metrics",
            answer.ok,
            f"{host}:{port}/{path} {what if answer.ok else answer.text or answer.status}",
            None if answer.ok else f"tailspan up serves it; another port: --metrics-port ({port})",
        )


def _explorer(host: str, port: int) -> Iterator[Finding]:
    answer = probes.get(f"http://{host}:{port}/_stcore/health")
    yield Finding(
        "explorer",
        answer.ok,
        f"http://{host}:{port} {'answers' if answer.ok else answer.text or answer.status}",
        None if answer.ok else f"tailspan up starts it; its log is var/explorer.log ({port})",
    )
