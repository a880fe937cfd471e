import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.scrape.fetch import MAX_BYTES
from rig.http_servers import ConnectionHandler, raw_server
from rig.program import PATIENCE_S
from server import http_check
from tests.hostile.conftest import collecting

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
RUNNING = b"vllm:num_requests_running 3\n"
INFINITE = b"process_start_time_seconds +Inf\n"


def responding(body: bytes, head: bytes = OK) -> ConnectionHandler:
    def handler(connection: socket.socket, _request: bytes, _ending: threading.Event) -> None:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    return handler


def endless(connection: socket.socket, _request: bytes, ending: threading.Event) -> None:
    connection.sendall(OK + b"\r\n" + RUNNING)
    while not ending.wait(0.05):
        connection.sendall(b"x")


def silent(_connection: socket.socket, _request: bytes, ending: threading.Event) -> None:
    ending.wait(PATIENCE_S)


def too_large(connection: socket.socket, _request: bytes, _ending: threading.Event) -> None:
    connection.sendall(OK + b"\r\n")
    for _ in range(MAX_BYTES // 2**16 + 2):
        connection.sendall(b"#" * 2**16)


MANNERS: dict[str, tuple[ConnectionHandler, str | None]] = {
    "infinite": (responding(INFINITE + RUNNING), None),
    "impossible": (
        responding(
            b"process_start_time_seconds NaN\n"
            b"vllm:num_requests_waiting 1e308\n"
            b"vllm:kv_cache_usage_perc -1\n"
            b'vllm:generation_tokens_total{model_name="a"} 9e18\n'
            b'vllm:generation_tokens_total{model_name="b"} 9e18\n' + RUNNING
        ),
        None,
    ),
    "elsewhere": (
        responding(b"", b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n"),
        "redirect",
    ),
    "endless": (endless, "timeout"),
    "silent": (silent, "timeout"),
    "too_large": (too_large, "too_large"),
    "no_text": (responding(b"vllm:num_requests_running{\xff\xfe 3\n"), "malformed"),
}


@pytest.fixture
def serve() -> Iterator[Callable[[ConnectionHandler], str]]:
    with raw_server() as begin:
        yield lambda handler: f"{begin(handler)}/metrics"


def samples_of(metrics: str, name: str) -> dict[tuple[str, str], float]:
    body = http_check.get(f"{metrics}/metrics", 20.0).body
    return {
        (sample.labels["target"], sample.labels.get("reason", "")): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name == name
    }


def test_a_bad_target_does_not_affect_the_others(
    tmp_path: Path, serve: Callable[[ConnectionHandler], str]
) -> None:
    urls = {name: serve(handler) for name, (handler, _) in MANNERS.items()}
    words = [word for url in urls.values() for word in ("--scrape", url)]
    url = f"sqlite:///{tmp_path}/t.db"
    with collecting(tmp_path, url, *words, "--scrape-every", "1s") as running:
        metrics = running.address("metrics")

        def stands() -> bool:
            up = samples_of(metrics, "tailspan_scrape_up")
            failures = samples_of(metrics, "tailspan_scrape_failures_total")
            return all(
                up.get((urls[name], "")) == (reason is None)
                and (reason is None or failures.get((urls[name], reason), 0) >= 2)
                for name, (_, reason) in MANNERS.items()
            )

        deadline = time.monotonic() + PATIENCE_S
        while not stands():
            assert time.monotonic() < deadline, (
                samples_of(metrics, "tailspan_scrape_up"),
                running.printed,
            )
            time.sleep(0.2)
        # Targets with impossible values are still scraped, so their last success is recent.
        name = "tailspan_scrape_last_success_timestamp_seconds"
        before = samples_of(metrics, name)
        while samples_of(metrics, name)[urls["infinite"], ""] <= before[urls["infinite"], ""]:
            assert time.monotonic() < deadline, running.printed
            time.sleep(0.2)
        assert not any(
            reason == "failed"
            for _, reason in samples_of(metrics, "tailspan_scrape_failures_total")
        )
        assert http_check.get(f"{metrics}/readyz").body == "ready\n"
        assert "Traceback" not in running.printed
