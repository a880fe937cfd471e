import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGSTOP, SIGTERM, Signals

import pytest
from click.testing import CliRunner, Result
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from cli.main import tailspan
from rig.program import FREE_PORTS, PATIENCE_S, Program, Tailspan, tailspan_command
from store.database import open_database
from store.queries import request_count, request_table
from telemetry.requests import RequestTimeline, Source
from telemetry.window import Window

RunUp = Callable[..., Tailspan]
MakeSpan = Callable[..., ReadableSpan]


EVER = Window(0, 2**63 - 1)
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def children_of(running: Program) -> list[int]:
    return [
        int(status.parent.name)
        for status in Path("/proc").glob("[0-9]*/stat")
        if parent_of(status) == running.process.pid
    ]


def parent_of(status: Path) -> int | None:
    """Return the parent's id from /proc/PID/stat; None if the process has ended."""
    try:
        state, parent = status.read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def becomes_true(holds: Callable[[], bool]) -> bool:
    """Wait until a condition holds, and return whether it did in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(process: int) -> bool:
    """Wait for a process to end, and return whether it ended."""
    return becomes_true(lambda: parent_of(Path("/proc", str(process), "stat")) is None)


def pause(process: int) -> None:
    """Stop a process with SIGSTOP, and wait until it is stopped."""
    os.kill(process, SIGSTOP)
    status = Path("/proc", str(process), "stat")
    assert becomes_true(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")


@pytest.fixture
def up(tmp_path: Path, url: str) -> Iterator[Callable[..., Tailspan]]:
    with ExitStack() as running:

        def start(*words: str) -> Tailspan:
            return running.enter_context(Tailspan(tmp_path, "up", "--database", url, *words))

        yield start


def send(port: int, spans: list[ReadableSpan]) -> bool:
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces", timeout=30)
    try:
        return exporter.export(spans) is SpanExportResult.SUCCESS
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK's own lapse


def stored(url: str) -> set[str]:
    engine = open_database(url, create=False)
    try:
        table = request_table(engine, EVER, columns=["request_id"])
    finally:
        engine.dispose()
    return set(table.column("request_id").to_pylist())


def test_spans_of_the_sdk_are_stored_exported_and_listed(
    up: RunUp, span: MakeSpan, run: Callable[..., Result]
) -> None:
    running = up("--no-explorer")
    running.wait_for("Ctrl-C stops it")
    assert send(running.port("http"), [span(request_id="by-http")])
    exporter = GrpcSpanExporter(f"http://127.0.0.1:{running.port('grpc')}", insecure=True)
    assert exporter.export([span("replica-2", request_id="by-grpc")]) is SpanExportResult.SUCCESS
    exporter.shutdown()
    running.wait_for(r"Telemetry arrives from replica-1\.")
    running.wait_for(r"Telemetry arrives from replica-2\.")

    address = f"http://127.0.0.1:{running.port('metrics')}/metrics"
    with urllib.request.urlopen(address, timeout=20) as answer:
        text = answer.read().decode()
    assert re.search(r'^tailspan_requests_total\{.*replica="replica-2".*\} 1$', text, re.M), text
    listed = run("requests", "--format", "json", "--last", "1m", window=False)
    assert {json.loads(row)["request_id"] for row in listed.stdout.splitlines()} == {
        "by-http",
        "by-grpc",
    }

    assert running.ends(SIGINT) == 0
    assert "Stopped. 2 requests arrived" in running.printed


@pytest.mark.parametrize(("number", "status"), [(SIGINT, 0), (SIGKILL, -SIGKILL)])
def test_acknowledged_rows_survive_every_kind_of_end(
    up: RunUp,
    span: MakeSpan,
    url: str,
    number: Signals,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL")  # the senders log that they cannot reach the collector
    running = up("--no-explorer")
    port = running.port("http")
    acknowledged: set[str] = set()
    ending = threading.Event()

    address = f"http://127.0.0.1:{port}/v1/traces"
    exporters = [OTLPSpanExporter(address, timeout=30) for _ in range(4)]

    def sender(name: int, exporter: OTLPSpanExporter) -> None:
        number = 0
        while not ending.is_set():
            ids = {f"{name}-{number}-{each}" for each in range(20)}
            spans = [span(request_id=each) for each in ids]
            if exporter.export(spans) is SpanExportResult.SUCCESS:
                acknowledged.update(ids)
            number += 1

    senders = [threading.Thread(target=sender, args=each) for each in enumerate(exporters)]
    for each in senders:
        each.start()
    deadline = time.monotonic() + PATIENCE_S
    while len(acknowledged) < 1_000 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running.ends(number) == status
    ending.set()
    for exporter in exporters:
        exporter.shutdown()  # type: ignore[no-untyped-call]  # ends the wait before a retry
    for each in senders:
        each.join()
    assert len(acknowledged) >= 1_000
    assert acknowledged <= stored(url)


def test_a_second_tailspan_exits_and_names_the_first(
    up: RunUp,
    url: str,
    fill: Callable[..., None],
    request_row: Callable[..., RequestTimeline],
    tmp_path: Path,
) -> None:
    running = up("--no-explorer")
    ports = {part: running.port(part) for part in ("grpc", "http", "metrics")}
    fill(request_row(source=Source.SIMULATOR))
    options = [f"--{part}-port={port}" for part, port in ports.items()]
    begin = ["up", "--no-explorer", *options, "--database"]
    second = CliRunner().invoke(tailspan, [*begin, url])
    assert second.exit_code == 2
    assert f"process {running.process.pid}, command" in second.stderr
    second = CliRunner().invoke(tailspan, [*begin, f"sqlite:///{tmp_path}/another.db"])
    assert second.exit_code == 2
    assert "choose another with --grpc-port" in second.stderr
    assert f"Tailspan is already running here: http://127.0.0.1:{ports['metrics']}" in (
        second.stderr
    )
    engine = open_database(url)
    assert request_count(engine, EVER) == 1
    engine.dispose()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--simulate", "--vllm", "http://gpu-host:8000"], ["use one of them"]),
        # A typing error must not delete a month of data.
        (["--keep-rows", "7"], ["'--keep-rows'", "'7' is not a duration", "or forever"]),
        (["--keep-rows", "200000d"], ["--keep-rows", "200000d", "up to 18250d, or forever"]),
        (["--keep-hours", "30d"], ["--keep-hours 30d", "--keep-minutes 90d"]),
        (["--notify=/nope/n"], ["Error: --notify: /nope/n: No such file or directory\n"]),
        (["--roles=/nope/r"], ["Error: --roles: /nope/r: No such file or directory\n"]),
        (["--sign-in=/nope/s"], ["Error: --sign-in: /nope/s: No such file or directory\n"]),
        (["--prices=/nope/p"], ["--prices: /nope/p: cannot be read: No such file or directory\n"]),
        (["--grpc-port=4316", "--http-port=4316"], ["--grpc-port and --http-port are both 4316"]),
        (["--metrics-port=8501"], ["--metrics-port and --explorer-port are both 8501"]),
        (["--forward", "tempo:4318"], ["write http://HOST:4318"]),
        (["--forward", "http://tempo:x"], ["invalid port"]),
        (["--forward", "http://tempo:4318/v1/traces"], ["without /v1/traces"]),
        (["--forward", "http://0.0.0.0:4318"], ["the address of this Tailspan"]),
        (["--forward", "http://127.0.0.1", "--http-port=80"], ["the address of this Tailspan"]),
        (["--scrape", "gpu:8000"], ["gpu:8000"]),
        (["--scrape", "http://me:s3cret@gpu:8000"], ["credentials"]),
        (["--scrape-file", "nowhere.json"], ["nowhere.json"]),
        (["--scrape-every", "100ms"], ["100ms"]),
        (["--scrape", "https://gpu:8000", "--scrape-token-file", "nowhere"], ["nowhere"]),
        (["--scrape", "https://gpu:8000", "--scrape-ca", "nowhere.pem"], ["nowhere.pem"]),
        (["--scrape-ca", "nowhere.pem"], ["requires --scrape"]),
        (["--dcgm", "https://gpu:9400", "--dcgm-token-file", "nowhere"], ["nowhere"]),
        (["--dcgm-token-file", "nowhere"], ["requires --dcgm"]),
    ],
)
def test_wrong_options_are_refused(words: list[str], wanted: list[str], url: str) -> None:
    result = CliRunner().invoke(tailspan, ["up", "--database", url, *words])
    assert result.exit_code == 2
    assert all(part in result.output for part in wanted), result.output
    assert "s3cret" not in result.output


def test_a_closed_output_does_not_stop_tailspan(span: MakeSpan, url: str, tmp_path: Path) -> None:
    """`head -1` closes the output in `tailspan up | head -1`."""
    read, write = os.pipe()
    command = tailspan_command("up", "--database", url, *FREE_PORTS, "--no-explorer")
    with subprocess.Popen(command, cwd=tmp_path, stdout=write, stderr=write) as process:
        os.close(write)
        with os.fdopen(read) as output:
            for text in output:
                if found := re.search(r":(\d+) \(HTTP", text):
                    break
        assert found is not None
        assert send(int(found[1]), [span(request_id="unheard")])
        process.send_signal(SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert stored(url) == {"unheard"}


@ON_LINUX
def test_children_of_up_end_with_it_even_after_sigkill(up: RunUp, tmp_path: Path) -> None:
    """The child processes are the explorer, the simulator and the span reader."""
    running = up("--simulate", "--explorer-port=0", "--base-path=/ops/tail/")
    page = running.wait_for(r"  Explorer   (http://\S+)")
    assert page.rstrip("/").endswith("/ops/tail")
    running.wait_for("Telemetry arrives from sim-0")
    with urllib.request.urlopen(page, timeout=20) as answer:
        assert answer.status == 200
    started = children_of(running)
    assert len(started) == 3
    assert running.ends(SIGKILL) == -SIGKILL
    assert all(map(gone, started))
    assert {path.name for path in tmp_path.glob("*.log")} == {"explorer.log", "simulator.log"}


@ON_LINUX
def test_a_second_ctrl_c_ends_it_at_once(up: RunUp, tmp_path: Path) -> None:
    running = up("--explorer-port=0")
    # The explorer has started. It need not be ready, because it does not get a chance to respond.
    assert becomes_true((tmp_path / "explorer.log").exists)
    assert becomes_true(lambda: bool(children_of(running)))
    (child,) = children_of(running)
    pause(child)
    running.process.send_signal(SIGINT)
    running.wait_for("Stopping")
    deadline = time.monotonic() + PATIENCE_S
    while running.process.poll() is None and time.monotonic() < deadline:
        running.process.send_signal(SIGINT)
        time.sleep(0.05)
    assert running.ends() == -SIGINT
    assert gone(child)


@ON_LINUX
def test_up_ends_with_its_terminal(url: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    # The first terminal that the shell opens becomes the controlling terminal of its session.
    shell = f'exec "$@" <>{os.ttyname(theirs)} >&0 2>&1'
    command = tailspan_command("up", "--database", url, *FREE_PORTS, "--explorer-port=0")
    running = Program(tmp_path, "sh", "-c", shell, "sh", *command, start_new_session=True)
    seen = b""
    while b"Ctrl-C stops it" not in seen:
        seen += os.read(ours, 4096)
    os.close(theirs)
    started = children_of(running)
    assert len(started) == 1
    os.close(ours)
    assert running.ends() == 0
    assert all(map(gone, started))


def test_peaks_that_cannot_be_read_are_an_error_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAILSPAN_PEAKS", "nowhere.toml")
    for verb in ("up", "ui"):
        done = CliRunner().invoke(tailspan, [verb])
        assert done.exit_code == 2
        assert "TAILSPAN_PEAKS: nowhere.toml: cannot be read" in done.output


def test_a_token_in_the_environment_is_sent_only_over_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAILSPAN_SCRAPE_TOKEN", "s3cret-t0ken")
    done = CliRunner().invoke(tailspan, ["up", "--scrape", "http://gpu:8000"])
    assert done.exit_code == 2
    assert "use https" in done.output
    assert "s3cret" not in done.output
