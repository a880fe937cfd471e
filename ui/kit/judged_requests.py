"""Stored requests judged against an objective now: a changed one, or a subset of requests."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from alerts.burnrate import Counts
from alerts.evaluation.counting import counts_between
from alerts.expression import And, Comparison
from alerts.objectives import Goodput
from store.queries import Window, request_count
from ui.kit.time_bins import SECOND_NS

MOST_JUDGED: Final = 200_000
"""The newest requests that are judged; more would take seconds."""


def judged_window(engine: Engine, window: Window) -> Window:
    """Return the newest part of a range that has at most `MOST_JUDGED` requests."""
    number = request_count(engine, window)
    if number <= MOST_JUDGED:
        return window
    length_ns = window.to_unix_ns - window.from_unix_ns
    return Window(window.to_unix_ns - length_ns * MOST_JUDGED // number, window.to_unix_ns)


def judged(engine: Engine, goodput: Goodput, window: Window) -> Counts:
    """Count the requests that ended in a range, to whole seconds."""
    from_s, to_s = window.from_unix_ns // SECOND_NS, -(-window.to_unix_ns // SECOND_NS)
    if from_s >= to_s:
        return Counts(0, 0)
    return counts_between(engine, goodput, from_s, to_s)


def narrowed(goodput: Goodput, equals: Mapping[str, str]) -> Goodput:
    """Return an indicator for only the requests that pass the filters."""
    whole = goodput.part.whole if goodput.part else goodput
    filters = [Comparison(label, "==", value, f'"{value}"') for label, value in equals.items()]
    which = (*([whole.where] if whole.where is not None else []), *filters)
    return replace(whole, where=which[0] if len(which) == 1 else And(which), by=(), reserved=())
