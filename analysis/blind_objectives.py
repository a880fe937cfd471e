"""Check in the store whether an objective is blind: it counted too few requests or probes to alert.

Only the last hour is checked.

The generated Prometheus rules do the same check on `/metrics`. Only the rules can report the reason
`late`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Engine

from alerts.blindness import LOOKBACK_S, blind_because, blind_to_probes
from alerts.burnrate import EventCounts
from alerts.evaluation.counting import Tally
from alerts.objectives import GoodProbes, Objective
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
