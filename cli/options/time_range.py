"""Parse the time range of a command. Pure.

An instant without a time zone is UTC, so that a command selects the same range on every machine.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from telemetry.durations import parse_ns
from telemetry.time_text import moment
from telemetry.window import Window

DEFAULT_LAST = "15m"

_NS = 1_000_000_000
_UNIX_S = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,9})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_ns(text: str) -> int:
    """Parse unix seconds ("1763634000.5") or ISO 8601 ("2026-11-20T10:20:00Z"). Return unix ns.

    Raises:
        ValueError: the text has neither form, or the instant is out of range.
    """
    if _UNIX_S.fullmatch(text):
        return _in_range(text, int(Decimal(text) * _NS))
    try:
        moment = datetime.fromisoformat(text)
        since = moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH
        if since.days < 0:
            raise ValueError("before 1970")
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is not a time; allowed: unix seconds (1763634000) or ISO 8601"
            " (2026-11-20T10:20:00Z; UTC if it has no zone), from 1970 on"
        ) from error
    return _in_range(text, (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1_000)


def _in_range(text: str, unix_ns: int) -> int:
    if unix_ns >= 2**63:
        raise ValueError(f"{text!r} is too late; allowed: times before 2262-04-11")
    return unix_ns


def window(last: str | None, start: str | None, end: str | None, now_unix_ns: int) -> Window:
    """The window of `--last`, `--from` and `--to`.

    Raises:
        ValueError: a value is malformed, `--last` and `--from` are both given, or the end is not
            after the start.
    """
    if last is not None and start is not None:
        raise ValueError("--last and --from exclude each other: use one of them")
    to_unix_ns = now_unix_ns if end is None else _read("--to", instant_ns, end)
    if start is None:
        length_ns = _read("--last", parse_ns, DEFAULT_LAST if last is None else last)
        from_unix_ns = max(0, to_unix_ns - length_ns)
    else:
        from_unix_ns = _read("--from", instant_ns, start)
    if from_unix_ns >= to_unix_ns:
        raise ValueError(
            f"the window must end after it begins: --from {moment(from_unix_ns)},"
            f" --to {moment(to_unix_ns)}{' (now)' if end is None else ''}"
        )
    return Window(from_unix_ns, to_unix_ns)


def from_to(text: str) -> Window:
    """Parse FROM/TO, such as "2026-11-20T09:00Z/2026-11-20T10:00Z".

    Raises:
        ValueError: the text is malformed, or TO is not later than FROM.
    """
    start, slash, end = text.partition("/")
    if not slash:
        raise ValueError("must be FROM/TO")
    found = instant_ns(start), instant_ns(end)
    if found[0] >= found[1]:
        raise ValueError("must end after it begins")
    return Window(*found)


def baseline(text: str, window: Window) -> Window:
    """Parse a baseline, which is FROM/TO or a duration. With a duration such as 24h, the baseline
    is 24 h earlier.

    Raises:
        ValueError: the text is malformed, or TO is not later than FROM.
    """
    if "/" in text:
        return from_to(text)
    try:
        ago_ns = parse_ns(text)
    except ValueError:
        raise ValueError("must be FROM/TO, or a duration such as 24h") from None
    if ago_ns > window.from_unix_ns:
        raise ValueError("must not be earlier than 1970")
    return Window(window.from_unix_ns - ago_ns, window.to_unix_ns - ago_ns)


def _read(option: str, parse: Callable[[str], int], value: str) -> int:
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{option} {error}") from error
