import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from collector.counters import Counters
from collector.listen.asgi_server import AsgiHost
from collector.testing import background_loop
from exporters.definitions import series
from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format, takes_gzip
from exporters.metrics_app import _SharedScrapes, metrics_app
from exporters.prometheus import PrometheusExporter
from telemetry.engines import EngineSample
from telemetry.requests import Outcome, RequestTimeline
from tests.exporters.format.prometheus_messages import native_counts, read

OPENMETRICS: Any = parser  # the functions have no type annotations
Get = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def exporter(
    clock: Any, request_row: Callable[..., RequestTimeline], sample_row: Callable[..., EngineSample]
) -> PrometheusExporter:
    counters = Counters()
    counters.committed(clock())
    exporter = PrometheusExporter(counters.report, clock_unix_ns=clock)
    whole = {name: 1 for name in EngineSample.__dataclass_fields__ if name.endswith("_total")}
    exporter.on_stored([request_row(outcome=outcome) for outcome in Outcome], [sample_row(**whole)])
    return exporter


@pytest.fixture
def readiness() -> dict[str, bool]:
    return {"ready": True}


@pytest.fixture
def failing() -> tuple[list[str], list[str]]:
    """Return the names of failing parts: those that readiness needs, and the others."""
    return [], []


@pytest.fixture
def get(
    exporter: PrometheusExporter, readiness: dict[str, bool], failing: tuple[list[str], list[str]]
) -> Iterator[Get]:
    app = metrics_app(Exposition([exporter]), lambda: readiness["ready"], lambda: failing)
    host = AsgiHost(app, host="127.0.0.1", port=0, option="--metrics-port")

    def fetch(path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection("127.0.0.1", host.port, timeout=30)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    with background_loop() as loop:
        asyncio.run_coroutine_threadsafe(host.start(), loop).result(timeout=30)
        yield fetch
        asyncio.run_coroutine_threadsafe(host.stop(1), loop).result(timeout=30)


def test_metrics_are_sent_as_text_by_default(get: Get) -> None:
    status, headers, body = get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'tailspan_requests_total{model="llama",outcome="stop",replica="r1"} 1\n' in body


def test_an_unknown_path_is_answered_with_the_paths(get: Get) -> None:
    status, _, body = get("/")
    assert (status, body) == (404, b"Not found. The paths are /metrics, /healthz, /readyz\n")


def test_metrics_are_sent_as_openmetrics_on_request(get: Get) -> None:
    _, headers, body = get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in OPENMETRICS.text_string_to_metric_families(body.decode())}
    assert {"tailspan_ttft_seconds", "tailspan_requests"} <= names


def test_metrics_are_sent_as_protobuf_on_request(get: Get) -> None:
    _, headers, body = get("/metrics", Accept=str(Format.PROTOBUF))
    assert headers["content-type"] == str(Format.PROTOBUF)
    families = {family.name: family for family in read(body)}
    text = get("/metrics")[2].decode()
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    # The next scrape reports the size and the duration of a scrape.
    assert named - set(families) <= {series.SCRAPE_SECONDS.name, series.SCRAPE_BYTES.name}
    assert set(families) <= named
    [metric] = families["tailspan_ttft_seconds"].metric
    assert sum(native_counts(metric.histogram).values()) == metric.histogram.sample_count > 0


def test_a_scrape_reports_the_previous_one(get: Get) -> None:
    assert b"tailspan_exporter_last_scrape_bytes" not in get("/metrics")[2]
    body = get("/metrics")[2].decode()
    assert "tailspan_exporter_last_scrape_bytes " in body
    assert 'tailspan_exporter_series{metric="tailspan_requests_total"} 5\n' in body
    assert "process_resident_memory_bytes " in body


def test_metrics_are_compressed_on_request(get: Get) -> None:
    _, headers, body = get("/metrics", **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert body[:2] == b"\x1f\x8b"


def test_health_is_life_and_readiness_is_receiving(get: Get, readiness: dict[str, bool]) -> None:
    assert get("/healthz")[0] == get("/readyz")[0] == 200
    readiness["ready"] = False
    assert get("/healthz")[0] == 200
    assert get("/readyz")[0] == 503


@pytest.mark.real
def test_promtool_accepts_the_metrics_response(get: Get) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    _, _, body = get("/metrics")
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=body, capture_output=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_part_that_fails_is_named(get: Get, failing: tuple[list[str], list[str]]) -> None:
    """The service is unready only if it loses telemetry when this part fails."""
    vital, degraded = failing
    degraded.append("evaluator (KeyError)")
    assert get("/readyz")[::2] == (200, b"ready; degraded: evaluator (KeyError)\n")
    vital.append("store writer (ended)")
    assert get("/readyz")[::2] == (503, b"not ready; failing: store writer (ended)\n")
    assert get("/healthz")[0] == 200


class _Slow:
    def __init__(self) -> None:
        self.written = 0
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def write(self, format_: Format) -> bytes:
        self.began.release()
        assert self.go.acquire(timeout=20)
        self.written += 1
        return str(self.written).encode()


def test_concurrent_scrapes_share_one_that_began_after_their_requests() -> None:
    slow = _Slow()
    scrapes = _SharedScrapes(slow)  # type: ignore[arg-type]  # all that it needs

    async def ask() -> list[bytes]:
        first = asyncio.create_task(scrapes.read(Format.PLAIN, False))
        await asyncio.to_thread(slow.began.acquire, timeout=20)
        others = [asyncio.create_task(scrapes.read(Format.PLAIN, False)) for _ in range(99)]
        others[0].cancel()  # the end of one client's connection does not affect the other clients
        slow.go.release()
        await asyncio.to_thread(slow.began.acquire, timeout=20)
        slow.go.release()
        return [await first, *(await asyncio.gather(*others[1:]))]

    assert asyncio.run(ask()) == [b"1", *[b"2"] * 98]


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
    ],
)
def test_a_response_is_compressed_on_request(header: str, wanted: bool) -> None:
    assert takes_gzip(header) is wanted
