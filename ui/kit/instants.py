"""Instants in a page's address: unix seconds or ISO 8601. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

_NS: Final = 1_000_000_000
LATEST_UNIX_S: Final = 2**63 // _NS - 1


def instant_unix_ns(text: str) -> int | None:
    """Parse an instant. Return None unless the text is an instant between 1970 and 2262."""
    nanoseconds = _parsed(text)
    if nanoseconds is None or not 0 <= nanoseconds < (LATEST_UNIX_S + 1) * _NS:
        return None
    return nanoseconds


def allowed(text: str) -> str:
    """The values that `instant_unix_ns` accepts, for an error message."""
    if (_parsed(text) or 0) > LATEST_UNIX_S * _NS:
        return "times before 2262-04-11"
    return "unix seconds or an ISO 8601 time"


def _parsed(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,10})(?:\.([0-9]{1,9}))?", text, flags=re.ASCII)
    if match:
        return int(match[1]) * _NS + int((match[2] or "0").ljust(9, "0"))
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1000


def seconds_text(unix_ns: int) -> str:
    """Unix seconds, with no more digits than needed."""
    whole, rest = divmod(unix_ns, _NS)
    return f"{whole}.{rest:09d}".rstrip("0") if rest else str(whole)
