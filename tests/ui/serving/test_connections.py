import asyncio
import heapq
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from ui.serving import connections
from ui.serving.connections import HEAD_S, MAX_CONNECTIONS, TimedProtocol


class Loop:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._later: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def call_later(self, delay_s: float, what: Callable[..., None], *given: Any) -> None:
        entry = (self.now_s + delay_s, len(self._later), what, given)
        heapq.heappush(self._later, entry)

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._later and self._later[0][0] <= until_s:
            self.now_s, _, what, given = heapq.heappop(self._later)
            what(*given)
        self.now_s = until_s


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.closed = self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name.endswith("name") else default

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class Cycle:
    response_complete = False


def connected(state: ServerState) -> tuple[TimedProtocol, Transport, Loop]:
    loop, transport = Loop(), Transport()

    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    config = uvicorn.Config(app, log_config=None, interface="asgi3")
    config.load()
    protocol = TimedProtocol(config, state, {}, _loop=loop)  # type: ignore[arg-type]
    protocol.connection_made(transport)
    return protocol, transport, loop


def test_a_connection_without_a_request_is_closed() -> None:
    _, transport, loop = connected(ServerState())
    loop.pass_time(HEAD_S - 1)
    assert not transport.closed
    loop.pass_time(2)
    assert transport.closed


def test_a_request_in_progress_has_no_time_limit() -> None:
    protocol, transport, loop = connected(ServerState())
    cycle: Any = Cycle()
    protocol.cycle = cycle
    loop.pass_time(10 * HEAD_S)
    assert not transport.closed
    cycle.response_complete = True
    loop.pass_time(2 * HEAD_S)
    assert transport.closed


def test_one_connection_too_many_is_closed_at_once() -> None:
    state = ServerState()
    made = [connected(state)[1] for _ in range(MAX_CONNECTIONS + 1)]
    assert [each.aborted for each in made] == [False] * MAX_CONNECTIONS + [True]
    assert connections.MAX_CONNECTIONS < 1_024
