"""Resolve a host name and connect, with the duration of each step."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from probe.errors import ProbeFailure
from telemetry.printable import printable


@dataclass(slots=True)
class Timings:
    """Durations and instants of an HTTP exchange in seconds. Unknown values are None.

    Instants (`…_at`) are on the event loop's clock. `written_s` and `first_byte_s` begin at
    `ready_at`.
    """

    dns_s: float | None = None
    connect_s: float | None = None
    tls_s: float | None = None
    ready_at: float | None = None
    written_s: float | None = None
    first_byte_s: float | None = None
    ended_at: float | None = None
    certificate_ends_unix_s: float | None = None


async def connect(host: str, port: int, timings: Timings) -> socket.socket:
    """Connect a socket to the first address that answers.

    Raises:
        ProbeFailure: the name was not found, or no address answers.
    """
    loop = asyncio.get_running_loop()
    addresses = await _resolve(host, port, timings)
    start, failure = loop.time(), OSError("no address")
    for family, kind, protocol, _, address in addresses:
        try:
            connected = socket.socket(family, kind, protocol)
        except OSError as error:  # an address family without support, or too many open files
            failure = error
            continue
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(connected, address)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            timings.connect_s = loop.time() - start
            return connected
    raise ProbeFailure("connect", f"{host}:{port}: {reason_of(failure)}") from failure


async def _resolve(host: str, port: int, timings: Timings) -> list[Any]:
    """Resolve a host name. A numeric address needs no DNS, so `dns_s` stays unknown."""
    try:
        ip_address(host)
    except ValueError:
        pass
    else:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    loop = asyncio.get_running_loop()
    start = loop.time()
    try:
        found = await _in_a_thread(
            lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), loop
        )
    except (OSError, UnicodeError) as error:
        raise ProbeFailure("dns", f"the name {host} was not found: {reason_of(error)}") from error
    timings.dns_s = loop.time() - start
    return found


def _in_a_thread(
    call: Callable[[], list[Any]], loop: asyncio.AbstractEventLoop
) -> "asyncio.Future[list[Any]]":
    """Run a DNS lookup in its own thread. In asyncio's thread pool, a lookup would wait for other
    slow lookups, and the program could not end before them."""
    found: asyncio.Future[list[Any]] = loop.create_future()

    def settle(result: list[Any] | None, error: BaseException | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(result or [])
        else:
            found.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except Exception as error:  # raised in the probe that waits for the lookup
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the program is ending
            return

    threading.Thread(target=run, name="probe-dns", daemon=True).start()
    return found


def reason_of(error: BaseException) -> str:
    """A short reason for an error. asyncio's own message is not used, because it contains the
    address."""
    number = getattr(error, "errno", None)
    if isinstance(error, socket.gaierror) or not number or number < 0:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    else:
        text = os.strerror(number)
    return printable(str(text), 120).lower()
