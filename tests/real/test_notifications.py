"""From a fault to a webhook: by Prometheus and Alertmanager, and by Tailspan's own evaluator."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from tailspan_vllm import names
from tailspan_vllm.record import RequestRecord
from tailspan_vllm.spans import span_of

from alerts.evaluator import Evaluator
from alerts.generate import tailspan_rules
from alerts.notify.channel_sender import ChannelSender
from alerts.notify.configuration import load_configuration
from alerts.notify.notifier import Notifier
from alerts.notify.posting import Sender
from alerts.notify.webhook import SIGNATURE, signature
from alerts.openslo import load
from alerts.policy import read_policy
from rig.ports import free_port
from store.alerting.notifications import read_notifications
from store.database import open_database

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

EXPLORER = "https://tailspan.example.org"
ROOT = Path(__file__).parents[2]
PATIENCE_S = 100.0

OBJECTIVE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat, displayName: Chat answers start in 500 ms}
spec:
  service: chat
  budgetingMethod: Occurrences
  timeWindow: [{duration: PERIOD, isRolling: true}]
  objectives: [{target: 0.99}]
  indicator: {spec: {ratioMetric: {counter: true,
    total: {metricSource: {type: tailspan, spec: {}}},
    good: {metricSource: {type: tailspan, spec: {good: ttft_s <= 0.5}}}}}}
"""

# With windows so short that it pages within seconds: the factor is 5.9976.
POLICY = """\
source: this test
period: 7d
minimum_bad_events: 5
pairs: [{severity: page, long: 1m, short: 15s, budget_share: 0.000595}]
"""


def wait_for(what: str, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What is found, once there is something."""
    deadline = time.monotonic() + patience_s
    while not (result := found()):
        assert time.monotonic() < deadline, f"no {what} within {patience_s:g} s"
        time.sleep(0.2)
    return result


@dataclass
class Receiver:
    """A webhook: what came, by path."""

    url: str
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def documents(self, path: str) -> list[dict[str, Any]]:
        """The JSON that came to a path."""
        return [json.loads(body) for at, _, body in list(self.got) if at == path]

    def alerts(self, status: str) -> list[dict[str, Any]]:
        """The alerts that Alertmanager delivered for pages."""
        told = self.documents("/on-call")
        return [each for one in told if one["status"] == status for each in one["alerts"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A webhook server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.got.append((self.path, dict(self.headers), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    came = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield came
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a program; all of them end with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*words: str, **environ: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"{Path(words[0]).name}-{len(running)}.log"
        with log.open("wb") as output:
            running.append(
                subprocess.Popen(
                    words,
                    cwd=tmp_path,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **environ},
                )
            )
        return running[-1]

    yield begin
    for process in reversed(running):
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answers(port: int) -> Callable[[], bool]:
    """Whether someone listens there."""

    def look() -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", port)) == 0

    return look


def program(*called: str) -> str:
    """A program of Debian's, or the test is skipped."""
    for name in called:
        if found := shutil.which(name):
            return found
    pytest.skip(f"there is no {called[0]}: apt-get install {called[0]}")


@pytest.fixture
def alertmanager(
    tmp_path: Path, receiver: Receiver, start: Callable[..., subprocess.Popen[bytes]]
) -> str:
    """A real one with the routes that we ship, and webhooks in place of people; its address."""
    config = yaml.safe_load((ROOT / "alerts" / "alertmanager.yaml").read_text())
    config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    config["receivers"] = [
        {"name": "nobody"},
        {"name": "on-call", "webhook_configs": [{"url": f"{receiver.url}/on-call"}]},
        {"name": "team", "webhook_configs": [{"url": f"{receiver.url}/team"}]},
    ]
    (tmp_path / "alertmanager.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    start(
        program("prometheus-alertmanager", "alertmanager"),
        "--config.file=alertmanager.yaml",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--storage.path=alertmanager",
    )
    wait_for("Alertmanager", answers(port), 30)
    return f"http://127.0.0.1:{port}"


@dataclass
class Up:
    """A running `tailspan up`."""

    process: subprocess.Popen[bytes]
    http_port: int
    metrics_port: int

    def send(self, ages_s: list[float], ttft_s: float) -> None:
        """Tell it of requests that ended so long ago."""
        resource = Resource({names.SERVICE_NAME: "vllm", names.SERVICE_INSTANCE_ID: "vllm-0"})
        offset_ns = time.time_ns() - time.monotonic_ns()
        now = time.monotonic()
        spans = [
            span_of(
                RequestRecord(
                    received=now - age_s - ttft_s - 0.1,
                    queued=now - age_s - ttft_s - 0.05,
                    scheduled=now - age_s - ttft_s - 0.02,
                    first_token=now - age_s - 0.1,
                    first_byte=now - age_s - 0.1,
                    last_token=now - age_s,
                    delivered=now - age_s,
                    wall_offset_ns=offset_ns,
                    outcome="stop",
                    basis="http",
                    output_tokens=10,
                    streamed=True,
                ),
                resource,
            )
            for age_s in ages_s
        ]
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{self.http_port}/v1/traces", timeout=10)
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture
def tailspan_up(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> Callable[..., Up]:
    """Start Tailspan on an objective over a period, in the test's folder."""

    def begin(period: str, *words: str, **environ: str) -> Up:
        (tmp_path / "objective.yaml").write_text(OBJECTIVE.replace("PERIOD", period))
        http, metrics = free_port(), free_port()
        process = start(
            str(Path(sys.executable).with_name("tailspan")),
            *("up", "--no-explorer", "--objectives", "objective.yaml", "--grpc-port", "0"),
            *("--http-port", str(http), "--metrics-port", str(metrics), *words),
            **environ,
        )

        def ready() -> bool:
            assert process.poll() is None, "tailspan up ended"
            return answers(http)() and answers(metrics)()

        wait_for("Tailspan", ready, 60)
        return Up(process, http, metrics)

    return begin


def test_the_shipped_alertmanager_configuration_is_sound() -> None:
    """By Alertmanager's own checker."""
    done = subprocess.run(
        [program("amtool"), "check-config", str(ROOT / "alerts" / "alertmanager.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_generated_rules_page_once_and_resolve(
    tmp_path: Path,
    receiver: Receiver,
    alertmanager: str,
    tailspan_up: Callable[..., Up],
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    """A fault is scraped, burns, pages with its words and its link; mended, it is over."""
    up = tailspan_up("7d")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (read,) = load([tmp_path / "objective.yaml"]).objectives
    policy = read_policy(tmp_path / "policy.yaml").over(read.period_s, read.budget)
    objectives = [replace(read, policy=policy)]
    (tmp_path / "rules.yaml").write_text(tailspan_rules(objectives, EXPLORER))
    target = {"targets": [f"127.0.0.1:{up.metrics_port}"]}
    manager = {"targets": [alertmanager.removeprefix("http://")]}
    config = {
        "global": {"scrape_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [manager]}]},
        "scrape_configs": [{"job_name": "tailspan", "static_configs": [target]}],
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    start(
        program("prometheus"),
        "--config.file=prometheus.yaml",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.path=prometheus",
    )
    wait_for("Prometheus", answers(port), 30)

    def slow() -> list[dict[str, Any]]:
        up.send([0.0] * 3, 2.0)
        return receiver.alerts("firing")

    def fast() -> list[dict[str, Any]]:
        up.send([0.0] * 30, 0.1)
        return receiver.alerts("resolved")

    wait_for("page", slow)
    (over, *_) = wait_for("resolve", fast)
    (page,) = receiver.alerts("firing")
    assert page["labels"]["alertname"] == "TailspanBudgetBurn"
    assert (page["labels"]["slo"], page["labels"]["severity"]) == ("chat", "page")
    said = page["annotations"]
    assert re.fullmatch(r"chat: the error budget burns \d+\.\d times too fast", said["summary"]), (
        said
    )
    assert "Promised: 99 % requests with ttft_s <= 0.5 over 7d." in said["description"]
    assert re.search(r"\d+ of \d+ bad in the last 1m; they burn", said["description"])
    assert said["dashboard_url"] == f"{EXPLORER}/?last=1h&latency=ttft&page=why"
    assert page["generatorURL"].endswith("tab=1")
    assert over["fingerprint"] == page["fingerprint"]
    assert over["endsAt"] > over["startsAt"]


def test_tailspans_own_evaluator_pages_through_alertmanager_and_a_webhook(
    tmp_path: Path, receiver: Receiver, alertmanager: str, tailspan_up: Callable[..., Up]
) -> None:
    """Each is told once, over a restart, and of the end; the webhook's message is signed."""
    (tmp_path / "notify.yaml").write_text(f"""\
explorer_url: {EXPLORER}
channels:
  - {{name: manager, type: alertmanager, severities: [page], url: "{alertmanager}"}}
  - {{name: hook, type: webhook, severities: [page], url_env: HOOK, signing_key_env: KEY}}
""")
    environ = {"HOOK": f"{receiver.url}/hook", "KEY": "a key of the test"}
    up = tailspan_up("30d", "--notify", "notify.yaml", **environ)
    # Bad for a quarter of an hour, until shortly before now: noticed at once, and soon quiet.
    began = time.time()
    up.send([float(age_s) for age_s in [*range(1, 230, 10), *range(1_130, 2_000, 10)]], 0.1)
    up.send([float(age_s) for age_s in range(230, 1_130, 10)], 2.0)
    wait_for("message", lambda: receiver.documents("/hook"))
    (page,) = wait_for("page", lambda: receiver.alerts("firing"))
    up.process.terminate()
    assert up.process.wait(30) == 0
    up = tailspan_up("30d", "--notify", "notify.yaml", **environ)
    time.sleep(max(0.0, began + 75 - time.time()))
    up.process.terminate()
    assert up.process.wait(30) == 0

    (message,) = receiver.documents("/hook")
    assert (message["transition"], message["slo"], message["severity"]) == (
        "firing",
        "chat",
        "page",
    )
    assert re.fullmatch(
        r"\[page\] chat: the error budget burns \d+\.\d times too fast", message["title"]
    )
    assert message["title"] == page["annotations"]["summary"]
    assert message["link"] == f"{EXPLORER}/?page=why&incident=chat@{message['fired_unix_s']}"
    assert page["annotations"]["dashboard_url"] == message["link"]
    assert "Chat answers start in 500 ms" in page["annotations"]["description"]
    (headers, body) = next((h, b) for path, h, b in receiver.got if path == "/hook")
    sent_s = int(headers[SIGNATURE].split(",")[0].removeprefix("t="))
    assert headers[SIGNATURE] == signature("a key of the test", body, sent_s)

    # Ten quiet minutes later, which nobody waits for here.
    engine = open_database(f"sqlite:///{tmp_path}/var/tailspan.db")
    objectives = load([tmp_path / "objective.yaml"]).objectives
    channels = load_configuration(tmp_path / "notify.yaml", environ).channels
    later = int(time.time()) + 600
    Evaluator(engine, objectives).evaluate(later)
    notifier = Notifier(engine, objectives, channels, explorer_url=lambda: EXPLORER)
    notifier.enqueue(later)
    for channel in channels:
        (attempt,) = ChannelSender(
            engine, channel, Sender(channel), clock_s=lambda: later
        ).deliver()
        assert attempt.answer.status == 200, attempt
    rows = read_notifications(engine, "chat")
    assert {row.state for row in rows} == {"delivered"}
    engine.dispose()
    wait_for("resolve", lambda: receiver.alerts("resolved"))
    assert len(receiver.alerts("firing")) == 1
    assert [each["transition"] for each in receiver.documents("/hook")] == ["firing", "resolved"]
