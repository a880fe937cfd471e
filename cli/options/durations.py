"""Options for durations."""

from typing import Final

import click

from telemetry import durations

FOREVER: Final = "forever"
LONGEST_RETENTION: Final = "18250d"
"""About 50 years. Times before 1970 cannot be stored. A ClickHouse TTL must end before 2106."""
_NONE: Final = ("0", "0s")


class Duration(click.ParamType[int]):
    """A duration such as `15s`, converted to nanoseconds. It is at least `least` and at most
    `most`. If `least` is None, any duration above 0 is allowed."""

    name = "duration"

    def __init__(
        self, least: str | None = None, most: str | None = None, *, zero: bool = False
    ) -> None:
        self._least, self._most, self._zero = least, most, zero

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return nanoseconds."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if self._zero and text in _NONE:
            return 0
        try:
            found = durations.parse_ns(text)
        except ValueError as error:
            self.fail(f"{error}{', or 0' if self._zero else ''}", param, ctx)
        least, most = (
            None if t is None else durations.parse_ns(t) for t in (self._least, self._most)
        )
        if (least is not None and found < least) or (most is not None and found > most):
            self.fail(f"{text!r}; allowed: {self._range}", param, ctx)
        return found

    @property
    def _range(self) -> str:
        if self._most is None:
            return f"{self._least} or more"
        return f"up to {self._most}" if self._least is None else f"{self._least} to {self._most}"


class Retention(click.ParamType[int | None]):
    """A retention in nanoseconds, or None to keep data for ever."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return nanoseconds, or None for `forever`."""
        if isinstance(value, int) or value == FOREVER:
            return value if isinstance(value, int) else None
        text = str(value).strip()
        try:
            found = durations.parse_ns(text)
        except ValueError as error:
            self.fail(f"{error}; or {FOREVER}", param, ctx)
        if found > durations.parse_ns(LONGEST_RETENTION):
            self.fail(f"{text!r}; allowed: up to {LONGEST_RETENTION}, or {FOREVER}", param, ctx)
        return found
