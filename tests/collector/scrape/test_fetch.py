import asyncio
import gzip
from typing import Any

import pytest

from collector.scrape.failure_reasons import ScrapeError, ScrapeFailureReason
from collector.scrape.fetch import MAX_BYTES, fetch, http_client
from tests.collector.scrape.conftest import Manner, Stranger, responding


async def _never(reader: Any, writer: Any) -> None:
    await reader.read()


async def _dripping_headers(reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while not reader.at_eof():
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _dripping_body(reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not reader.at_eof():
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _endless(reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(2 * MAX_BYTES // 2**16):
        writer.write(b"a" * 2**16)
        await writer.drain()


async def _other_protocol(reader: Any, writer: Any) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


async def _cut_short(reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")


BOMB = gzip.compress(b"tgi_queue_size 1\n" * 100_000)


@pytest.mark.parametrize(
    ("manner", "expected"),
    [
        (
            responding(b"", "302 Found", "Location: http://127.0.0.1:1/"),
            ScrapeFailureReason.REDIRECT,
        ),
        (
            responding(b"", "301 Moved", "Location: file:///etc/passwd"),
            ScrapeFailureReason.REDIRECT,
        ),
        (responding(b"no", "500 Broken"), ScrapeFailureReason.HTTP_STATUS),
        (responding(b"", "204 No Content"), ScrapeFailureReason.HTTP_STATUS),
        (responding(BOMB, "200 OK", "Content-Encoding: gzip"), ScrapeFailureReason.MALFORMED),
        (_endless, ScrapeFailureReason.TOO_LARGE),
        (_other_protocol, ScrapeFailureReason.MALFORMED),
        (_cut_short, ScrapeFailureReason.MALFORMED),
        (_never, ScrapeFailureReason.TIMEOUT),
        (_dripping_headers, ScrapeFailureReason.TIMEOUT),
        (_dripping_body, ScrapeFailureReason.TIMEOUT),
    ],
)
def test_each_wrong_behaviour_of_a_server_has_its_reason(
    stranger: Stranger, manner: Manner, expected: ScrapeFailureReason
) -> None:
    patience_s = 0.3 if expected is ScrapeFailureReason.TIMEOUT else 20.0

    async def ask() -> None:
        async with stranger(manner) as url, http_client() as client:
            with pytest.raises(ScrapeError) as raised:
                await fetch(client, url, patience_s)
            assert raised.value.reason is expected

    asyncio.run(ask())


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/metrics", "http://no-such-name.invalid/metrics", "http://[::1"]
)
def test_a_closed_port_or_unknown_name_is_unreachable(url: str) -> None:
    async def ask() -> None:
        async with http_client() as client:
            with pytest.raises(ScrapeError) as raised:
                await fetch(client, url, 20.0)
            assert raised.value.reason is ScrapeFailureReason.UNREACHABLE

    asyncio.run(ask())


def test_a_whole_answer_is_returned_unchanged(stranger: Stranger) -> None:
    async def ask() -> None:
        async with stranger(responding(b"tgi_queue_size 1\n")) as url, http_client() as client:
            assert await fetch(client, url, 20.0) == b"tgi_queue_size 1\n"

    asyncio.run(ask())
