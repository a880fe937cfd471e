import json
import re
import shutil
import sqlite3
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from tailspan_vllm import names
from tailspan_vllm.otlp.request_span import span_of
from tailspan_vllm.request.record import RequestRecord

from alerts.evaluation.evaluator import Evaluator
from alerts.notify.channel_sender import ChannelSender
from alerts.notify.configuration import load_configuration
from alerts.notify.http_post import ChannelPoster
from alerts.notify.notifier import Notifier
from alerts.notify.webhook import SIGNATURE, signature
from alerts.openslo.reader import load
from alerts.policy import read_policy
from alerts.prometheus.generate import tailspan_rules
from rig.http_servers import HttpServer, running_http_server
from rig.ports import free_port
from rig.program import Program, Tailspan
from rig.prometheus_stack import answers, wait_for
from store.alerting.incidents import read_incidents
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

# With such short windows, an objective alerts within seconds. The limit of its burn rate is 5.9976.
POLICY = """\
source: this test
period: 7d
minimum_bad_events: 5
pairs: [{severity: page, long: 1m, short: 15s, budget_share: 0.000595}]
"""


@dataclass
class Receiver:
    server: HttpServer

    @property
    def url(self) -> str:
        return self.server.url

    def documents(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in list(self.server.received) if each.path == path]

    def alerts(self, status: str) -> list[dict[str, Any]]:
        reported = self.documents("/on-call")
        return [each for one in reported if one["status"] == status for each in one["alerts"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_http_server() as server:
        yield Receiver(server)


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as running:
        yield lambda *command: running.enter_context(Program(tmp_path, *command))


def program(*called: str) -> str:
    for name in called:
        if found := shutil.which(name):
            return found
    pytest.skip(f"there is no {called[0]}: apt-get install {called[0]}")


@pytest.fixture
def alertmanager(tmp_path: Path, receiver: Receiver, start: Start) -> str:
    """Run a real Alertmanager with the shipped routes and webhook receivers; yield its address."""
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
    wait_for("Alertmanager", partial(answers, f"http://127.0.0.1:{port}/-/ready"))
    return f"http://127.0.0.1:{port}"


def send(up: Tailspan, ages_s: list[float], ttft_s: float) -> None:
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
    exporter = OTLPSpanExporter(f"{up.address('http')}/v1/traces", timeout=10)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    exporter.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture
def tailspan_up(tmp_path: Path) -> Iterator[Callable[..., Tailspan]]:
    """Return a function that starts Tailspan with an objective over a period."""
    with ExitStack() as running:

        def begin(period: str, *words: str, **environ: str) -> Tailspan:
            (tmp_path / "objective.yaml").write_text(OBJECTIVE.replace("PERIOD", period))
            words = ("up", "--no-explorer", "--objectives", "objective.yaml", *words)
            return running.enter_context(Tailspan(tmp_path, *words, environ=environ)).is_up()

        yield begin


def test_the_shipped_alertmanager_configuration_is_valid() -> None:
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
    tailspan_up: Callable[..., Tailspan],
    start: Start,
) -> None:
    up = tailspan_up("7d")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (read,) = load([tmp_path / "objective.yaml"]).objectives
    policy = read_policy(tmp_path / "policy.yaml").over(read.period_s, read.budget)
    objectives = [replace(read, policy=policy)]
    rules = yaml.safe_load(tailspan_rules(objectives, EXPLORER))
    for group in rules["groups"]:
        group["interval"] = "1s"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    target = {"targets": [f"127.0.0.1:{up.port('metrics')}"]}
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
    wait_for("Prometheus", partial(answers, f"http://127.0.0.1:{port}/-/ready"))

    def slow() -> list[dict[str, Any]]:
        send(up, [0.0] * 3, 2.0)
        return receiver.alerts("firing")

    def fast() -> list[dict[str, Any]]:
        send(up, [0.0] * 30, 0.1)
        return receiver.alerts("resolved")

    wait_for("page", slow, PATIENCE_S)
    (over, *_) = wait_for("resolve", fast, PATIENCE_S)
    (page,) = receiver.alerts("firing")
    assert page["labels"]["alertname"] == "TailspanBudgetBurn"
    assert (page["labels"]["slo"], page["labels"]["severity"]) == ("chat", "page")
    annotations = page["annotations"]
    assert re.fullmatch(
        r"chat: the error budget burns \d+\.\d times too fast", annotations["summary"]
    ), annotations
    assert "Objective: 99 % of requests with ttft_s <= 0.5 over 7d." in annotations["description"]
    assert re.search(r"\d+ of \d+ bad in the last 1m. Burn rates: ", annotations["description"])
    assert annotations["dashboard_url"] == f"{EXPLORER}/?last=1h&latency=ttft&page=root-cause"
    assert page["generatorURL"].endswith("tab=1")
    assert over["fingerprint"] == page["fingerprint"]
    assert over["endsAt"] > over["startsAt"]


def test_tailspans_own_evaluator_pages_through_alertmanager_and_a_webhook(
    tmp_path: Path, receiver: Receiver, alertmanager: str, tailspan_up: Callable[..., Tailspan]
) -> None:
    (tmp_path / "notify.yaml").write_text(f"""\
explorer_url: {EXPLORER}
channels:
  - {{name: manager, type: alertmanager, severities: [page], url: "{alertmanager}"}}
  - {{name: hook, type: webhook, severities: [page], url_env: HOOK, signing_key_env: KEY}}
""")
    environ = {"HOOK": f"{receiver.url}/hook", "KEY": "a key of the test"}
    up = tailspan_up("30d", "--notify", "notify.yaml", **environ)
    # The requests are bad for a quarter of an hour until just before now.
    send(up, [float(age_s) for age_s in [*range(1, 230, 10), *range(1_130, 2_000, 10)]], 0.1)
    send(up, [float(age_s) for age_s in range(230, 1_130, 10)], 2.0)
    wait_for("message", lambda: receiver.documents("/hook"))
    (page,) = wait_for("page", lambda: receiver.alerts("firing"))
    assert up.ends(SIGTERM) == 0

    def updated() -> str:
        with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts", timeout=10) as answer:
            (alert,) = json.loads(answer.read())
        return str(alert["updatedAt"])

    first = updated()
    with closing(sqlite3.connect(tmp_path / "var" / "tailspan.db")) as database, database:
        database.execute(
            "UPDATE slo_notifications SET next_unix_s = 0 WHERE next_unix_s IS NOT NULL"
        )
    up = tailspan_up("30d", "--notify", "notify.yaml", **environ)
    # Tailspan repeats an active alert, which Alertmanager must not send again. The repeat is due
    # now, and not only after a minute.
    wait_for("repeat", lambda: updated() != first, PATIENCE_S)
    assert up.ends(SIGTERM) == 0

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
    assert message["link"] == f"{EXPLORER}/?page=root-cause&incident=chat@{message['fired_unix_s']}"
    assert page["annotations"]["dashboard_url"] == message["link"]
    assert "Chat answers start in 500 ms" in page["annotations"]["description"]
    asked = next(each for each in receiver.server.received if each.path == "/hook")
    signed = asked.headers[SIGNATURE.lower()]
    sent_s = int(signed.split(",")[0].removeprefix("t="))
    assert signed == signature("a key of the test", asked.body, sent_s)

    # An alert ends after ten minutes without bad requests. The test does not wait, but evaluates
    # with a time ten minutes later.
    engine = open_database(f"sqlite:///{tmp_path}/var/tailspan.db")
    objectives = load([tmp_path / "objective.yaml"]).objectives
    channels = load_configuration(tmp_path / "notify.yaml", environ).channels
    later = int(time.time()) + 600
    Evaluator(engine, objectives).evaluate(later)
    (incident,) = read_incidents(engine, "chat")
    assert incident.ended_unix_s is not None
    # Alertmanager ignores an end in the future if an earlier message contains a later end.
    time.sleep(max(0.0, incident.ended_unix_s + 1 - time.time()))
    notifier = Notifier(engine, objectives, channels, explorer_url=lambda: EXPLORER)
    notifier.enqueue(later)
    for channel in channels:
        (attempt,) = ChannelSender(
            engine, channel, ChannelPoster(channel), clock_s=lambda: later
        ).deliver()
        assert attempt.answer.status == 200, attempt
    rows = read_notifications(engine, "chat")
    assert {row.state for row in rows} == {"delivered"}
    engine.dispose()
    wait_for("resolve", lambda: receiver.alerts("resolved"))
    assert len(receiver.alerts("firing")) == 1
    assert [each["transition"] for each in receiver.documents("/hook")] == ["firing", "resolved"]
