import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from collector.server import Collector
from collector.testing import MemorySink, running
from rig.http_servers import HttpReply, ReceivedRequest, running_http_server
from rig.ports import free_port
from simulator import live
from simulator.sending import Sent
from telemetry.starts import EngineStart


class SlowSink(MemorySink):
    def submit(
        self,
        requests: Sequence[Any],
        samples: Sequence[Any],
        starts: Sequence[EngineStart] = (),
        gpus: Sequence[Any] = (),
        in_flight: Sequence[Any] = (),
        probes: Sequence[Any] = (),
        operations: Sequence[Any] = (),
        lookups: Sequence[Any] = (),
        cold_starts: Sequence[Any] = (),
        *,
        leads_ns: Mapping[str, int] = MappingProxyType({}),
    ) -> Any:
        threading.Event().wait(0.1)
        return super().submit(
            *(requests, samples, starts, gpus, in_flight, probes, operations, lookups),
            cold_starts,
            leads_ns=leads_ns,
        )


@contextmanager
def collecting(sink: MemorySink, **options: Any) -> Iterator[Collector]:
    with running(Collector(sink, grpc_port=0, http_port=0, **options)) as collector:
        yield collector


def _redirect(target: str, request: ReceivedRequest) -> HttpReply:
    return HttpReply(307, headers={"Location": f"{target}{request.path}"})


def _simulate(endpoint: str, *words: str) -> Result:
    options = ["--incident", "none", "--endpoint", endpoint, "--rate", "20", *words]
    return CliRunner().invoke(tailspan, ["simulate", *options], catch_exceptions=False)


class Clock:
    """A wall clock that is one minute slow, and that only `wait` advances."""

    def __init__(self) -> None:
        self.now_ns = time.time_ns() - 60 * 10**9

    def __call__(self) -> int:
        return self.now_ns

    def wait(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the simulator stop without waiting, and wait only 1 s for an unresponsive collector."""
    clock = Clock()
    monkeypatch.setattr(live, "CLOSE_S", 0.0)
    quick = partial(live.run, clock_ns=clock, wait=clock.wait, patience_s=1.0, progress_s=0.5)
    monkeypatch.setattr(live, "run", quick)


def test_a_simulation_with_an_end_waits_until_a_slow_collector_has_everything() -> None:
    sink = SlowSink()
    with collecting(sink) as collector:
        result = _simulate(
            f"http://127.0.0.1:{collector.http_port}", "--backfill", "30s", "--duration", "1s"
        )
    assert result.exit_code == 0, result.stderr
    assert "all delivered" in result.stderr.splitlines()[-1]
    assert f"sent {len(sink.requests)} requests" in result.stderr
    assert len(sink.requests) > 1_000
    assert "requests not delivered yet" in result.stderr


def test_a_simulation_without_a_collector_gives_up() -> None:
    result = _simulate(f"http://127.0.0.1:{free_port()}", "--backfill", "30s", "--duration", "1s")
    assert result.exit_code == 2
    assert "does not accept the data" in result.stderr
    assert "not delivered: " in result.stderr.splitlines()[-1]
    assert "not delivered: 0 requests" not in result.stderr


def test_a_collector_that_dies_during_a_run_gives_exit_status_2() -> None:
    statuses = iter([200, 200])
    with running_http_server(lambda _: HttpReply(next(statuses, 503))) as server:
        result = _simulate(server.url, "--backfill", "30s", "--duration", "1s")
    assert result.exit_code == 2
    assert "not delivered: " in result.stderr.splitlines()[-1]


def test_rejected_items_are_counted_and_give_exit_status_2() -> None:
    sink = MemorySink()
    with collecting(sink, keep_ns=60 * 10**9) as collector:
        url = f"http://127.0.0.1:{collector.http_port}"
        result = _simulate(url, "--backfill", "2m", "--duration", "1s", "--rate", "5")
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert f"sent {len(sink.requests)} requests" in last
    assert "rejected by the collector: 0 requests" not in last
    assert "rejected by the collector: " in last


def test_ctrl_c_ends_a_simulation_that_waits() -> None:
    stop, asked = threading.Event(), threading.Event()

    def never(_: ReceivedRequest) -> None:
        asked.set()
        stop.wait(30)

    messages: list[str] = []
    with running_http_server(never) as server:
        plan = live.SimulationPlan(
            endpoint=server.url, fleet=_fleet(), backfill_s=60.0, duration_s=0.0
        )
        ended: list[Sent] = []
        thread = threading.Thread(
            target=lambda: ended.append(live.run(plan, stop, messages.append))
        )
        thread.start()
        assert asked.wait(30)
        stop.set()
        thread.join(30)
    (sent,) = ended
    assert sent.requests == 0
    assert f"not delivered: {sent.dropped_requests} requests" in messages[-1]
    assert sent.dropped_requests > 0


def test_a_redirect_is_neither_followed_nor_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry's exporter counts a redirect as a success."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=s3cret")
    with (
        running_http_server() as other,
        running_http_server(partial(_redirect, other.url)) as server,
    ):
        result = _simulate(server.url, "--backfill", "30s", "--duration", "1s")
    assert result.exit_code == 2
    assert not other.received


def _fleet() -> Any:
    from simulator.fleet_config import FleetConfig
    from simulator.workload import Workload

    return FleetConfig(workload=Workload(rate_per_s=20.0))


ELSEWHERE = "http://collector.example:4318"


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["simulate", "--endpoint", ELSEWHERE], {"OTEL_EXPORTER_OTLP_HEADERS": "k=s3cret"}),
        (["simulate", "--endpoint", ELSEWHERE], {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "k=s3cret"}),
        (["gpus", "--endpoint", ELSEWHERE], {"TAILSPAN_TOKENS": "s3cret-s3cret-s3cret"}),
        (["doctor", "--host", "c.example"], {"TAILSPAN_TOKENS": "s3cret-s3cret-s3cret"}),
        (["dashboards", "push", "--url", "http://g.example"], {"GRAFANA_TOKEN": "s3cret"}),
        (["up", "--forward", ELSEWHERE], {"TAILSPAN_FORWARD_HEADERS": "k=s3cret"}),
        (["up", "--scrape", "http://c.example/metrics"], {"TAILSPAN_SCRAPE_TOKEN": "s3cret"}),
        (["collect", "--dcgm", "http://c.example"], {"TAILSPAN_DCGM_TOKEN": "s3cret"}),
    ],
)
def test_credentials_are_not_sent_in_clear_text(words: list[str], environ: dict[str, str]) -> None:
    result = CliRunner().invoke(tailspan, words, env=environ, catch_exceptions=False)
    assert result.exit_code == 2
    assert "would be sent unencrypted" in result.stderr
    assert "--insecure-credentials" in result.stderr
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@tempo:4318",
        "http://me:s3cret@tempo:x",
        "me:s3cret@tempo",
        "https://tempo/?token=s3cret",
        "https://me:s3cret@tempo/v1/traces",
        "http://me:s3cret@127.0.0.1:4318",
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        ["up", "--forward"],
        ["simulate", "--endpoint"],
        ["dashboards", "push", "--url"],
        ["dashboards", "push", "--url", "http://127.0.0.1:1", "--prometheus"],
    ],
)
def test_an_error_about_an_address_shows_no_password(words: list[str], url: str) -> None:
    if words[-1] == "--url" and "?" in url:
        pytest.skip("a query is part of the path there, and nothing is wrong with it")
    result = CliRunner().invoke(
        tailspan, [*words, url], env={"GRAFANA_TOKEN": "t"}, catch_exceptions=False
    )
    assert result.exit_code == 2
    assert "s3cret" not in result.output


def test_a_redirect_by_grafana_does_not_get_the_token() -> None:
    with (
        running_http_server() as other,
        running_http_server(partial(_redirect, other.url)) as server,
    ):
        result = CliRunner().invoke(
            tailspan,
            ["dashboards", "push", "--url", server.url],
            env={"GRAFANA_TOKEN": "s3cret"},
            catch_exceptions=False,
        )
    assert result.exit_code == 2
    assert "redirects to another address, which is not followed" in result.output
    assert not other.received
