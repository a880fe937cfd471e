"""Read a recorded trace of requests: arrival time, prompt length, output length.

The file is CSV with a header. Columns are named as in public traces, in upper or lower case, such
as TIMESTAMP, ContextTokens and GeneratedTokens in the Azure LLM inference traces.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, TextIO

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "at": ("timestamp", "arrived_at", "arrival_time", "time"),
    "prompt": ("contexttokens", "prompt_tokens", "input_tokens", "input_length"),
    "output": ("generatedtokens", "output_tokens", "output_length"),
}

MAX_S: Final = 31 * 86_400
MAX_TOKENS: Final = 2**31 - 1
_LINE_CHARACTERS: Final = 2**20
_SHOWN_CHARACTERS: Final = 200


class TraceError(ValueError):
    """The file is not a valid trace."""


class TraceRow(NamedTuple):
    """One request of a trace."""

    at_s: float
    """Seconds since the first request."""
    prompt_tokens: int
    output_tokens: int


def read_trace(path: Path, max_requests: int | None = None) -> tuple[TraceRow, ...]:
    """Read a trace, in order of time.

    Args:
        max_requests: maximum number of requests, or None for any number.

    Raises:
        TraceError: the file is not a valid trace.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return parse_trace(_lines(file, str(path)), str(path), max_requests)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error


def _lines(file: TextIO, name: str) -> Iterator[str]:
    number = 0
    while line := file.readline(_LINE_CHARACTERS + 1):
        number += 1
        if len(line) > _LINE_CHARACTERS:
            raise TraceError(
                f"{name}, line {number}: longer than {_LINE_CHARACTERS:,} characters; allowed: one"
                " request per line"
            )
        yield line


def parse_trace(
    lines: Iterable[str], name: str, max_requests: int | None = None
) -> tuple[TraceRow, ...]:
    """Parse the lines of a trace. See `read_trace`."""
    reader = csv.reader(lines)
    header = [cell.strip().lower() for cell in next(reader, [])]
    places = {what: _column_index(header, what, names, name) for what, names in COLUMNS.items()}
    found: list[TraceRow] = []
    for number, cells in enumerate(reader, 2):
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{name}, line {number}"
        if len(cells) <= max(places.values()):
            raise TraceError(f"{where}: {len(cells)} columns; expected {len(header)}")
        if len(found) == max_requests:
            raise TraceError(
                f"{where}: more than {max_requests:,} requests; allowed: at most that many. Use a"
                f" part of the trace: head -n {max_requests + 1} {name}"
            )
        found.append(
            TraceRow(
                _instant(cells[places["at"]], where),
                _tokens(cells[places["prompt"]], header[places["prompt"]], where),
                _tokens(cells[places["output"]], header[places["output"]], where),
            )
        )
    if not found:
        raise TraceError(f"{name}: contains no requests")
    found.sort()
    if (length_s := found[-1].at_s - found[0].at_s) > MAX_S:
        raise TraceError(
            f"{name}: {length_s:,.0f} s from the first request to the last; allowed: at most"
            f" {MAX_S:,} s (31 days)"
        )
    return tuple(row._replace(at_s=row.at_s - found[0].at_s) for row in found)


def _column_index(header: list[str], what: str, names: tuple[str, ...], name: str) -> int:
    for each in names:
        if each in header:
            return header.index(each)
    raise TraceError(
        f"{name}, line 1: no column for {what}; it may be called {', '.join(names)}; "
        f"there are: {', '.join(header)[:_SHOWN_CHARACTERS] or 'none'}"
    )


def _instant(text: str, where: str) -> float:
    """Parse a number of seconds, or a date and time. Return seconds. Any number of decimals is
    allowed."""
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        whole, dot, fraction = text.partition(".")
        zone = ""
        for sign in ("+", "-", "Z"):
            digits, found, rest = fraction.partition(sign)
            if found:
                fraction, zone = digits, found + rest
                break
        try:
            moment = datetime.fromisoformat(whole + zone)
            # Without a time zone, UTC is assumed, which does not affect differences between times.
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            number = moment.timestamp() + (float(f"0.{fraction}") if dot and fraction else 0.0)
        except ValueError as error:
            raise TraceError(
                f"{where}: {text!r} is not a time; allowed: seconds, or a date and time as in "
                "2023-11-16 18:15:46.68"
            ) from error
    if number != number or number in (float("inf"), float("-inf")):
        raise TraceError(f"{where}: {text!r} is not a time; allowed: a finite number of seconds")
    return number


def _tokens(text: str, column: str, where: str) -> int:
    try:
        tokens = int(text)
    except ValueError as error:
        raise TraceError(f"{where}: {column} = {text!r}; allowed: a whole number") from error
    if tokens < 0:
        raise TraceError(f"{where}: {column} = {tokens}; allowed: 0 or more")
    if tokens > MAX_TOKENS:
        raise TraceError(f"{where}: {column} = {tokens}; allowed: at most {MAX_TOKENS:,}")
    return tokens
