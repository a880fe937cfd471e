"""Refuse a question that would read too many requests."""

import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import click

from analysis.compare.answer import MAX_READ as MAX_OF_SIDE
from analysis.database import opened_to_read
from analysis.requests import count_requests
from analysis.stats import reads_rows
from cli.options import time_range
from cli.options.question import equals_of
from cli.options.shared import state_url
from cli.questions.declared import MAX_LINES
from cli.questions.refusal import QuestionRefused
from telemetry.window import Window

MAX_READ: Final = 1_000_000
"""Maximum requests that an answer may read one by one. A million requests use at most 733 MB for an
explanation (docs/benchmarks.md)."""


def check_rows(name: str, chosen: Mapping[str, Any]) -> None:
    """Raise QuestionRefused if the command would read too many requests one by one.

    `chosen` has the options as click parsed them.
    """
    windows = list(_windows(name, chosen))
    if not windows:
        return
    with opened_to_read(chosen.get("database"), state_url()) as engine:
        # An explanation also reads requests that this reader may not see.
        hidden = name == "explain"
        numbers = [count_requests(engine, each, with_hidden=hidden) for each in windows]
    # A comparison has a limit for each of its two sides.
    number, most = sum(numbers), MAX_READ
    place = 0
    if name == "compare":
        number, most = max(numbers), MAX_OF_SIDE
        place = numbers.index(number)
    if number > most:
        parameter, value = _range_of(chosen, place)
        raise QuestionRefused(
            f"the range has {number:,} requests; allowed: at most {most:,}; ask about a"
            " shorter range",
            HTTPStatus.UNPROCESSABLE_ENTITY,
            parameter=parameter,
            value=value,
            allowed=f"a range with at most {most:,} requests",
        )


def _range_of(chosen: Mapping[str, Any], place: int) -> tuple[str, str]:
    """The parameter that sets a range, and its value. `place` 0 means the first range, and 1 the
    second range."""
    if chosen.get("before") and chosen.get("after"):
        name = ("before", "after")[place]
        return name, chosen[name]
    if start := chosen.get("start"):
        return "from", start
    return "last", chosen.get("last") or time_range.DEFAULT_LAST


def limited(name: str, given: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Add a `limit` to the question `requests`. The default is one more than an answer may contain.

    Raises:
        QuestionRefused: the reader's limit is 0 or too high.
    """
    if name != "requests":
        return given
    for key, value in given:
        if key == "limit" and value.isdecimal() and not 1 <= int(value) <= MAX_LINES:
            allowed = f"1 to {MAX_LINES:,}"
            raise QuestionRefused(
                f"limit {value[:80]}; allowed: {allowed}",
                parameter=key,
                value=value[:80],
                allowed=allowed,
            )
    default = [] if any(key == "limit" for key, _ in given) else [("limit", str(MAX_LINES + 1))]
    return [*given, *default]


def _windows(name: str, chosen: Mapping[str, Any]) -> Iterator[Window]:
    """Yield the ranges whose requests the command reads one by one.

    Commands that use rollups, or that have their own limit, have no such ranges.
    """
    try:
        if name == "explain" and not (chosen["incident"] or chosen["request_id"]):
            window = _window(chosen)
            length_ns = window.to_unix_ns - window.from_unix_ns
            before = Window(max(0, window.from_unix_ns - length_ns), window.from_unix_ns)
            if chosen["baseline"]:
                before = time_range.baseline(chosen["baseline"], window)
            yield from (before, window)
        elif name == "compare":
            yield from _compared(chosen)
        elif name == "budget" or (name == "stats" and _reads_rows(chosen)):
            yield _window(chosen)
    except (ValueError, TypeError, click.UsageError):
        return


def _compared(chosen: Mapping[str, Any]) -> Iterator[Window]:
    if chosen["before"] and chosen["after"]:
        yield from (time_range.from_to(chosen[side]) for side in ("before", "after"))
    else:
        yield _window(chosen)


def _reads_rows(chosen: Mapping[str, Any]) -> bool:
    labels = {each.strip() for each in chosen["by"].split(",") if each.strip()}
    labels |= set(equals_of(chosen["where"]))
    return reads_rows(labels, chosen["precision"])


def _window(chosen: Mapping[str, Any]) -> Window:
    return time_range.window(chosen["last"], chosen["start"], chosen["end"], time.time_ns())
