"""Decode server-sent events. Source: WHATWG HTML, "Interpreting an event stream"."""

import json
import re
from typing import Any, Final, NamedTuple

from probe.errors import ProbeFailure

MAX_EVENT_BYTES: Final = 2**20
"""Maximum size of an event in bytes. An event with a token has hundreds of bytes. An event that
summarises the answer has kilobytes."""

_END_OF_LINE: Final = re.compile(rb"\r\n|\n|\r(?!$)")


class Event(NamedTuple):
    """One event. `data` is None if it is not a JSON object. `text` is the data as text."""

    name: str
    data: dict[str, Any] | None
    text: str


def event_of(name: str, data: bytes) -> Event:
    """Parse the data of an event."""
    text = data.decode(errors="replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    return Event(name, parsed if isinstance(parsed, dict) else None, text)


class ServerSentEvents:
    """An incremental decoder, which skips comments such as keep-alive lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> list[Event]:
        """The events that these bytes complete.

        Raises:
            ProbeFailure: an event is too large.
        """
        self._size += len(received)
        if self._size > MAX_EVENT_BYTES:
            raise ProbeFailure("stream", f"an event has more than {MAX_EVENT_BYTES:,} bytes")
        lines = self._lines(received)
        events = [event for line in lines if (event := self._line(line))]
        if lines and not self._data:
            self._size = sum(map(len, self._rest))
        return events

    def _lines(self, received: bytes) -> list[bytes]:
        """The lines that these bytes complete.

        The parts of a line are joined only at its end, because joining them at each call would be
        slow.
        """
        after_cr = bool(self._rest) and self._rest[-1].endswith(b"\r")
        self._rest.append(received)
        if not (after_cr or b"\n" in received or b"\r" in received):
            return []
        *lines, rest = _END_OF_LINE.split(b"".join(self._rest))
        self._rest = [rest] if rest else []
        return lines

    def _line(self, line: bytes) -> Event | None:
        if not line:
            name, data = self._name, self._data
            self._name, self._data, self._size = "", [], 0
            return event_of(name, b"\n".join(data)) if data else None
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")[:100]
        return None
