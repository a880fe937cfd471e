"""Limit how many log lines each statement in the code may write, so that a client cannot fill the
disk."""

import logging
import time
from collections.abc import Callable
from typing import Final

LINES: Final = 5
PERIOD_S: Final = 60.0
"""Each log statement may write five lines in this period, so at most 7,200 lines per day."""

LIMITED: Final = (
    "asyncio",
    "uvicorn.error",
    "collector.listen.connections",
    "collector.intake",
    "collector.otlp.grpc_receiver",
    "collector.otlp.http_receiver",
    "collector.otlp.layout_reader",
    "collector.otlp.message_reader",
    "exporters.forwarding.forwarder",
    "server.api.worker_pool",
    "store.writer",
    # the MCP server
    "mcp.server.runner",
    "mcp.server.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
)
"""The loggers that may write a line for each message, request or connection of a client."""


class LogLimit(logging.Filter):
    """Limits the number of log records that each log statement may write in a period."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write this record. The first record of a period states how many records
        were omitted before it."""
        place, now = (record.pathname, record.lineno), self._clock()
        began, count = self._seen.get(place, (now, 0))
        if now - began >= PERIOD_S:
            if count > LINES:
                record.msg = f"{record.getMessage()} ({count - LINES} more like this before)"
                record.args = ()
            began, count = now, 0
        self._seen[place] = began, count + 1
        return count < LINES


_LIMIT: Final = LogLimit()


def limit_logs() -> None:
    """Limit the loggers in `LIMITED`; idempotent."""
    for name in LIMITED:
        logging.getLogger(name).addFilter(_LIMIT)
