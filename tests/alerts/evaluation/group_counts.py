"""Reads the stored counts of an objective's groups, and computes them again."""

from sqlalchemy import Engine

from alerts.burnrate import EventCounts
from alerts.evaluation.counting import EVALUATION_S, by_second, count_requests, read_tally
from alerts.evaluation.group_slots import expanded
from alerts.objectives import Goodput, Objective


def stored(engine: Engine, objective: Objective, from_s: int, to_s: int) -> dict[str, EventCounts]:
    """Return the stored counts, by group."""
    found = {}
    for each in expanded(engine, [objective]):
        assert isinstance(each.indicator, Goodput)
        tally = read_tally(engine, each.indicator, from_s, to_s, by_second())
        found[_values(each)] = tally.history.counts(from_s, to_s)
    return found


def recounted(
    engine: Engine, objective: Objective, from_s: int, to_s: int
) -> dict[str, EventCounts]:
    """Compute the same counts from rows and reports, with a separate expression per group."""
    found = {}
    for each in expanded(engine, [objective]):
        assert isinstance(each.indicator, Goodput)
        alone = Goodput(each.indicator.where, each.indicator.good)
        counts = count_requests(engine, alone, from_s, to_s, EVALUATION_S)
        bad, good = sum(one.bad for one in counts), sum(one.good for one in counts)
        found[_values(each)] = EventCounts(bad, bad + good)
    return found


def _values(objective: Objective) -> str:
    return ",".join(value for _, value in objective.group)
