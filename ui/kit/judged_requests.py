"""Count the good and bad stored requests of an objective that is new or limited by filters."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from alerts.burnrate import Counts
from alerts.evaluation.counting import counts_between
from alerts.expression import And, Comparison
from alerts.objectives import GoodEvents, Goodput
from store.queries import Window, request_count
from ui.kit.time_bins import SECOND_NS

MOST_JUDGED: Final = 200_000
"""Maximum number of requests to count, the newest first. More requests would take seconds."""


def judged_window(engine: Engine, window: Window) -> Window:
    """Shorten a range from its start until it has about `MOST_JUDGED` requests or fewer."""
    number = request_count(engine, window)
    if number <= MOST_JUDGED:
        return window
    length_ns = window.to_unix_ns - window.from_unix_ns
    return Window(window.to_unix_ns - length_ns * MOST_JUDGED // number, window.to_unix_ns)


def judged(engine: Engine, goodput: GoodEvents, window: Window) -> Counts:
    """Count the requests or probes that ended in a range, which is extended to whole seconds."""
    from_s, to_s = window.from_unix_ns // SECOND_NS, -(-window.to_unix_ns // SECOND_NS)
    if from_s >= to_s:
        return Counts(0, 0)
    return counts_between(engine, goodput, from_s, to_s)


def narrowed(goodput: Goodput, equals: Mapping[str, str]) -> Goodput:
    """Return the indicator restricted to requests that match the filters."""
    whole = goodput.part.whole if goodput.part else goodput
    assert isinstance(whole, Goodput)
    filters = [Comparison(label, "==", value, f'"{value}"') for label, value in equals.items()]
    which = (*([whole.where] if whole.where is not None else []), *filters)
    return replace(whole, where=which[0] if len(which) == 1 else And(which), by=(), reserved=())
