"""Count the good and bad requests of an objective in the store."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation.counting import counts_between
from alerts.expression import And, FieldComparison
from alerts.objectives import GoodEvents, Goodput
from analysis.over_time.time_bins import SECOND_NS
from analysis.requests import count_requests
from telemetry.window import Window

MAX_JUDGED: Final = 200_000
"""Only about this many requests are counted, the newest first. Counting more requests takes
seconds."""


def judged_window(engine: Engine, window: Window) -> Window:
    """The latest part of a range with at most about `MAX_JUDGED` requests."""
    number = count_requests(engine, window)
    if number <= MAX_JUDGED:
        return window
    length_ns = window.to_unix_ns - window.from_unix_ns
    return Window(window.to_unix_ns - length_ns * MAX_JUDGED // number, window.to_unix_ns)


def judged(engine: Engine, goodput: GoodEvents, window: Window) -> EventCounts:
    """Count the good and bad requests or probes that ended in a range. The range is extended to
    whole seconds."""
    from_s, to_s = window.from_unix_ns // SECOND_NS, -(-window.to_unix_ns // SECOND_NS)
    if from_s >= to_s:
        return EventCounts(0, 0)
    return counts_between(engine, goodput, from_s, to_s)


def narrowed(goodput: Goodput, equals: Mapping[str, str]) -> Goodput:
    """The indicator, limited to requests that match the filters."""
    whole = goodput.part.whole if goodput.part else goodput
    assert isinstance(whole, Goodput)
    filters = [FieldComparison(label, "==", value, f'"{value}"') for label, value in equals.items()]
    which = (*([whole.where] if whole.where is not None else []), *filters)
    return replace(whole, where=which[0] if len(which) == 1 else And(which), by=(), reserved=())
