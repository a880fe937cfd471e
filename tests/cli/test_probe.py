import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import func, select

from cli.main import tailspan
from store.database import open_database
from store.schema import PROBES, REQUESTS

KEYS = (
    *("at", "region", "endpoint", "kind", "outcome", "late_s", "dns_s", "connect_s", "tls_s"),
    *("written_s", "first_byte_s", "first_event_s", "first_reasoning_s", "first_content_s"),
    *("itl_max_s", "e2e_s", "output_tokens", "request_id", "cost_usd"),
)

_PROGRAM = (sys.executable, "-c", "from cli.main import main; main()")

STREAM = (
    b'data: {"id": "chatcmpl-1", "choices": [{"delta": {"content": "one"}}]}\n\n'
    b'data: {"id": "chatcmpl-1", "choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}\n\n'
    b"data: [DONE]\n\n"
)


class _Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _ModelServer)
        self.server.asked += 1
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401 if "wrong" in self.path else 200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if "slow" in self.path:
            self.wfile.flush()
            time.sleep(2)
        self.wfile.write(STREAM)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _ModelServer(ThreadingHTTPServer):
    request_queue_size = 128
    asked = 0
    """The number of probes so far."""


@pytest.fixture
def server() -> Iterator[_ModelServer]:
    server = _ModelServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def model(server: _ModelServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def _plan(folder: Path, *urls: str, more: str = "") -> Path:
    endpoints = "".join(
        f"  - {{name: e{n}, kind: openai-chat, url: '{url}', model: tiny, max_tokens: 8,"
        f" prompt_tokens: 40}}\n"
        for n, url in enumerate(urls)
    )
    path = folder / "probes.yaml"
    path.write_text(f"region: eu-west\nevery: 5s\n{more}endpoints:\n{endpoints}")
    return path


def test_once_prints_an_object_per_probe(model: str, tmp_path: Path) -> None:
    path = _plan(tmp_path, model)
    result = CliRunner().invoke(tailspan, ["probe", str(path), "--once", "--format", "json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.output)
    assert tuple(printed)[: len(KEYS)] == KEYS
    assert (printed["outcome"], printed["output_tokens"]) == ("stop", 4)
    assert (printed["tls_s"], printed["cost_usd"]) == (None, None)


def test_once_fails_if_a_probe_failed(model: str, tmp_path: Path) -> None:
    path = _plan(tmp_path, model, f"{model}/wrong")
    result = CliRunner().invoke(tailspan, ["probe", str(path), "--once"])
    assert result.exit_code == 1
    assert "e1  rejected: HTTP 401: the endpoint refused the key" in result.output
    assert "e0  stop: " in result.output


def test_a_bad_file_is_one_sentence(tmp_path: Path) -> None:
    path = _plan(tmp_path, "ftp://h")
    result = CliRunner().invoke(tailspan, ["probe", str(path), "--once"])
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert len(result.output.splitlines()) == 1


def test_a_budget_in_dollars_needs_a_price(model: str, tmp_path: Path) -> None:
    path = _plan(tmp_path, model, more="budget: {usd_per_day: 1}\n")
    state = str(tmp_path / "spent")
    result = CliRunner().invoke(tailspan, ["probe", str(path), "--once", "--state", state])
    assert result.exit_code == 2
    assert "budget.usd_per_day: the price of tiny at" in result.output


def test_a_probe_above_the_budget_is_not_sent(model: str, tmp_path: Path) -> None:
    path = _plan(tmp_path, model, more="budget: {tokens_per_day: 20}\n")
    state = tmp_path / "spent"
    result = CliRunner().invoke(
        tailspan, ["probe", str(path), "--once", "--state", str(state), "--format", "json"]
    )
    assert result.exit_code == 1
    assert json.loads(result.output)["outcome"] == "over_budget"
    assert not state.exists() or state.read_text().strip() == ""


def test_results_that_reach_no_collector_are_counted(model: str, tmp_path: Path) -> None:
    path = _plan(tmp_path, model, more="endpoint: http://127.0.0.1:1\n")
    result = CliRunner().invoke(tailspan, ["probe", str(path), "--once"])
    assert result.exit_code == 0
    assert (
        "1 results did not reach http://127.0.0.1:1: 127.0.0.1:1: connection refused"
        in result.output
    )


def test_ctrl_c_loses_no_result(model: str, tmp_path: Path) -> None:
    """The current probe ends as `abort`, and its tokens stay reserved in the budget."""
    path = _plan(tmp_path, f"{model}/slow", more="budget: {tokens_per_day: 5000}\n")
    state = tmp_path / "spent"
    words = ["probe", str(path), "--format", "json", "--state", str(state)]
    with subprocess.Popen(
        [*_PROGRAM, *words],
        stdout=subprocess.PIPE,
        env=os.environ,
    ) as process:
        deadline = time.monotonic() + 20
        while not (state.exists() and b"tokens" in state.read_bytes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
    (line,) = output.splitlines()
    assert json.loads(line)["outcome"] == "abort"
    assert process.returncode == 0
    assert json.loads(state.read_bytes())["tokens"] > 100


def test_the_prober_is_light(model: str, tmp_path: Path) -> None:
    """The prober runs near users, so it needs neither Streamlit nor a database driver."""
    path = _plan(tmp_path, model)
    program = (
        "import sys\n"
        "from cli.main import tailspan\n"
        f"tailspan(['probe', {str(path)!r}, '--once'], standalone_mode=False)\n"
        "from probe.protocols.bedrock import decoder; decoder()\n"
        "heavy = {'numpy', 'pyarrow', 'sqlalchemy', 'streamlit', 'grpc', 'numba'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout.splitlines()[-1]) < 100_000, "kB"


def test_a_reader_that_does_not_read_delays_no_probe(
    server: _ModelServer, model: str, tmp_path: Path
) -> None:
    """Writing to a full pipe must not block the schedule."""
    path = _plan(tmp_path, *[model] * 60)
    path.write_text(path.read_text().replace("every: 5s", "every: 1s"))
    with subprocess.Popen(
        [*_PROGRAM, "probe", str(path), "--format", "json"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        if sys.platform == "linux":  # so that the first ten results of 800 bytes fill the pipe
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4_096)
        deadline = time.monotonic() + 30
        while server.asked < 120:  # 60 probes per second
            assert time.monotonic() < deadline, server.asked
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    results = [json.loads(line) for line in output.splitlines()]
    assert len(results) >= 120
    assert not [each for each in results if each["outcome"] == "missed"]


def test_a_closed_output_ends_the_prober(model: str, tmp_path: Path) -> None:
    path = _plan(tmp_path, model)
    path.write_text(path.read_text().replace("every: 5s", "every: 1s"))
    words = [*_PROGRAM, "probe", str(path), "--format", "json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 128 + signal.SIGPIPE


def test_results_reach_the_store_and_metrics(
    model: str, tmp_path: Path, url: str, tailspan_of: Callable[..., list[str]]
) -> None:
    """The prober sends results over OTLP to the table of probes and to /metrics."""
    ports = dict(each.split("=") for each in tailspan_of() if "=" in each)
    path = _plan(
        tmp_path,
        model,
        f"{model}/wrong",
        more=f"endpoint: http://127.0.0.1:{ports['--http-port']}\n",
    )
    result = CliRunner().invoke(tailspan, ["probe", str(path), "--once"])
    assert "did not reach" not in result.output
    with urllib.request.urlopen(f"http://127.0.0.1:{ports['--metrics-port']}/metrics") as answer:
        metrics = answer.read().decode()
    labels = 'endpoint="{}",model="tiny",{}region="eu-west"'
    assert f"tailspan_probe_success{{{labels.format('e0', '')}}} 1" in metrics
    assert f"tailspan_probe_success{{{labels.format('e1', '')}}} 0" in metrics
    rejected = labels.format("e1", 'outcome="rejected",')
    assert f"tailspan_probe_results_total{{{rejected}}} 1" in metrics
    engine = open_database(url, create=False)
    with engine.connect() as connection:
        stored = connection.execute(select(PROBES.c.endpoint, PROBES.c.outcome)).all()
        counted = connection.scalar(select(func.count()).select_from(REQUESTS))
    engine.dispose()
    assert sorted(map(tuple, stored)) == [("e0", "stop"), ("e1", "rejected")]
    assert counted == 0
