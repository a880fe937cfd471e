"""Attacks on the JSON API get a clear error, and /metrics continues to respond."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from rig.prometheus_stack import wait_for
from server.api.limits import ApiLimits
from store.database import open_database
from tests.hostile.conftest import Connect, read_all
from tests.served_api import ServedApi, served


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApi]:
    url = f"sqlite:///{tmp_path_factory.mktemp('api')}/tailspan.db"
    open_database(url).dispose()
    with served(url, ApiLimits(seconds=60)) as running:
        assert running.get("stats").json() == []
        yield running


def _metrics(api: ServedApi) -> str:
    return httpx.get(f"{api.address}/metrics", timeout=20).text


def _port(api: ServedApi) -> int:
    return int(api.address.rpartition(":")[2])


def _problem(found: httpx.Response, status: int) -> dict[str, Any]:
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = found.json()
    assert problem["status"] == status
    assert problem["detail"]
    return problem


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("last", "malformed"),
        ("last=15m&&", "malformed"),
        ("last=%ff%fe", "malformed"),
        ("last=%00", "control character"),
        ("last=1m%0d%0aSet-Cookie:%20a=b", "control character"),
        ("last=1m&last=2m", "2 times; allowed: once"),
        ("&".join(["where=tenant%3Da"] * 100), "100 parameters; allowed: at most 64"),
        ("__proto__=1", "no parameter '__proto__'; allowed: last"),
        ("last=-1m", "not a duration"),
        ("last=999999999999w", "not a duration"),
        ("from=1e309", "not a time"),
        ("from=nan", "not a time"),
        ("to=9999-12-31", "is too late"),
        ("by=" + ",".join(["tenant"] * 100), "tenant is given twice"),
        ("where=tenant%3D" + "x" * 1_001, "at most 1,000"),
        ("where=" + "%27%3B%20DROP%20TABLE%20requests", "must be LABEL=VALUE"),
        ("config=/etc/passwd", "no parameter 'config'"),
        ("database=sqlite:////etc/passwd", "no parameter 'database'"),
        ("--last=1m", "no parameter '--last'"),
    ],
)
def test_a_hostile_query_is_refused_with_the_allowed_values(
    api: ServedApi, query: str, detail: str
) -> None:
    assert detail in _problem(api.get(f"stats?{query}"), 400)["detail"]


def test_a_limit_that_is_no_number_is_refused_with_the_range(api: ServedApi) -> None:
    detail = _problem(api.get("requests?limit=abc"), 400)["detail"]
    assert "'abc' is not a whole number in the range 1<=x<=" in detail


def test_values_that_look_like_options_or_sql_are_only_values(api: ServedApi) -> None:
    for value in ("--help", "-1", "'; DROP TABLE requests; --", "$(id)", "../../etc/passwd", "％"):
        found = api.get("stats", params={"where": f"tenant={value}"})
        assert (found.status_code, found.json()) == (200, [])


def test_a_long_query_string_is_refused(api: ServedApi) -> None:
    problem = _problem(api.get("stats?where=" + "x" * 6_000), 414)
    assert "allowed: at most 4,096" in problem["detail"]


def test_a_query_string_of_a_megabyte_is_refused_before_it_is_read(
    api: ServedApi, connect: Connect
) -> None:
    connection = connect(_port(api))
    answer = b""
    with suppress(ConnectionError):  # the server may close before the whole request is sent
        connection.sendall(b"GET /api/v1/stats?where=" + b"x" * 2**20 + b" HTTP/1.1\r\n\r\n")
        answer = read_all(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert _metrics(api) == "up 1\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(api: ServedApi, method: str) -> None:
    found = httpx.request(method, f"{api.address}/api/v1/stats")
    assert found.headers["allow"] == "GET, HEAD"
    assert f"{method}; allowed: GET, HEAD" in _problem(found, 405)["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "stats/",
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/metrics",
        "stats%00",
        "stats/../openapi.json",
        "x" * 2_000,
        "__class__",
        "trace",
        "dashboards",
        "up",
    ],
)
def test_other_paths_are_not_found(api: ServedApi, path: str, connect: Connect) -> None:
    """A raw connection sends the path unchanged; an HTTP client would normalise it."""
    head = f"GET /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    answer = read_all(connect(_port(api), head.encode()))
    assert answer.startswith(b"HTTP/1.1 404 "), answer
    assert b"application/problem+json" in answer
    assert b"root:" not in answer


def test_a_hundred_questions_at_once_are_answered_or_refused(api: ServedApi) -> None:
    """The questions use all connections that one address may have."""

    async def ask() -> tuple[Counter[int], list[float]]:
        limits = httpx.Limits(max_connections=12)
        scraped: list[float] = []

        async def scrape(client: httpx.AsyncClient) -> None:
            while True:
                began = time.monotonic()
                assert (await client.get(f"{api.address}/metrics")).text == "up 1\n"
                scraped.append(time.monotonic() - began)
                await asyncio.sleep(0.02)

        async with (
            httpx.AsyncClient(limits=limits, timeout=60) as client,
            httpx.AsyncClient(timeout=60) as other,
        ):
            scraping = asyncio.create_task(scrape(other))
            address = f"{api.address}/api/v1/stats?by=tenant"
            found = await asyncio.gather(*(client.get(address) for _ in range(100)))
            scraping.cancel()
        for each in found:
            if each.status_code == 503:
                assert each.headers["retry-after"] == "1"
                assert "allowed: 8;" in each.json()["detail"]
        return Counter(each.status_code for each in found), scraped

    counts, scraped = asyncio.run(ask())
    assert set(counts) <= {200, 503}
    assert counts[200] >= 8
    assert scraped
    assert max(scraped) < 5
    assert len(api.pool._all) <= 2
    assert api.get("stats").status_code == 200


def test_a_hundred_connections_do_not_block_a_scrape(api: ServedApi) -> None:
    """Connections above the limit per address are closed at once, and do not wait.

    Other addresses are not affected.
    """

    def ask(_: int) -> int | None:
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        try:
            with httpx.Client(transport=transport, timeout=60) as client:
                return client.get(f"{api.address}/api/v1/stats").status_code
        except httpx.TransportError:
            return None

    with ThreadPoolExecutor(100) as clients:
        asking = [clients.submit(ask, number) for number in range(100)]
        for _ in range(5):
            assert _metrics(api) == "up 1\n"
        found = Counter(each.result() for each in asking)
    assert set(found) <= {200, 503, None}
    assert found[200]
    assert api.get("stats").status_code == 200


def test_slow_clients_do_not_delay_others(api: ServedApi, connect: Connect) -> None:
    for _ in range(8):  # these requests are never complete
        connect(_port(api), b"GET /api/v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    began = time.monotonic()
    assert api.get("stats").status_code == 200
    assert time.monotonic() - began < 10
    assert _metrics(api) == "up 1\n"


def test_a_disconnect_ends_the_clients_question(tmp_path: Path, connect: Connect) -> None:
    """The API stops the process of the question at once."""
    url = f"sqlite:///{tmp_path}/tailspan.db"
    open_database(url).dispose()
    limits = ApiLimits(seconds=60)
    with served(url, limits) as api:
        allowed = limits.questions + limits.waiting
        asked = [
            connect(_port(api), b"GET /api/v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            for _ in range(allowed)
        ]
        # No question is answered yet, because a worker takes longer to start.
        wait_for("open question", lambda: api.pool._open == allowed)
        for client in asked:
            reset = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            client.close()
        wait_for("end of the questions", lambda: api.pool._open == 0)
        assert not api.pool._all
        assert api.get("stats").status_code == 200


def test_a_question_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """Importing the commands already takes longer than this limit."""
    url = f"sqlite:///{tmp_path}/tailspan.db"
    open_database(url).dispose()
    with served(url, ApiLimits(seconds=0.05)) as api:
        problem = _problem(api.get("explain"), 504)
        assert "more than 0.05 s; ask about a shorter range" in problem["detail"]
        assert not api.pool._all
        assert _metrics(api) == "up 1\n"
