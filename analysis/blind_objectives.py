"""Check in the store whether an objective is blind: it counted too few requests or probes to alert.

Only the last hour is checked.

The generated Prometheus rules do the same check on `/metrics`. Only the rules can report the reason
`late`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Engine

from alerts.blindness import LOOKBACK_S, blind_because, blind_to_probes
from alerts.burnrate import EventCounts
from alerts.evaluation.counting import Tally, by_second, read_tally
from alerts.evaluation.group_slots import expanded
from alerts.objectives import GoodEvents, GoodProbes, Objective
from store.probes import probe_count
from store.queries import request_count
from telemetry.window import Window

_NS: Final = 10**9


def blind_reason(
    engine: Engine, objective: Objective, tallies: Sequence[Tally], at_s: int
) -> str | None:
    """A key of `alerts.blindness.REASONS`, or None if the objective is not blind.

    Args:
        tallies: the counts of all groups for at least the hour before `at_s`. The groups are
            checked as a whole.
    """
    if not objective.alert_when_no_data:
        return None
    from_s = at_s - LOOKBACK_S
    counts = sum((each.requests(from_s) for each in tallies), EventCounts(0, 0))
    if isinstance(objective.indicator, GoodProbes):
        probes = probe_count(engine, Window(from_s * _NS, at_s * _NS)) if not counts.events else 0
        return blind_to_probes(counts, probes)
    excluded: Counter[str] = Counter()
    for each in tallies:
        excluded.update(each.excluded(from_s))
    # Two cases: there are no requests at all, or the objective's `where` matches none of them.
    requests = 0
    if not counts.events and not any(excluded.values()):
        requests = request_count(engine, Window(from_s * _NS, at_s * _NS))
    return blind_because(counts, excluded, requests)


def blind_reasons(
    engine: Engine, objectives: Sequence[Objective], at_s: int
) -> Mapping[str, str | None]:
    """Map each objective to the reason why it is blind. The value is None if it is not blind. Only
    objectives with recent requests or probes are included."""
    from_s = at_s - LOOKBACK_S
    hour = Window(from_s * _NS, at_s * _NS)
    requests, probes = request_count(engine, hour), probe_count(engine, hour)
    count = by_second()
    found: dict[str, str | None] = {}
    for objective in objectives:
        if not (probes if isinstance(objective.indicator, GoodProbes) else requests):
            continue
        tallies = [
            read_tally(engine, each.indicator, from_s, at_s, count)
            for each in expanded(engine, [objective])
            if isinstance(each.indicator, GoodEvents)
        ]
        if tallies:
            found[objective.name] = blind_reason(engine, objective, tallies, at_s)
    return found
