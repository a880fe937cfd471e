"""Choose the objectives that a reader may see.

A reader may see an objective if the reader may see all requests that the objective counts."""

from collections.abc import Sequence

from sqlalchemy import Engine

from alerts import groups
from alerts.evaluation.group_slots import expanded
from alerts.expression import FieldComparison, conjuncts
from alerts.objectives import GoodEvents, GoodProbes, Objective
from store.access.restricted import access_of
from telemetry.access import Access


def access_with_objectives(
    engine: Engine, access: Access, objectives: Sequence[Objective]
) -> Access:
    """The access of a reader, with the objectives that the reader may see."""
    if not access.limits_rows:
        return access
    found = [each for each in expanded(engine, objectives) if is_visible(each, access)]
    digests = [each.indicator.digest for each in found if isinstance(each.indicator, GoodEvents)]
    return access.with_objectives([each.name for each in found], digests)


def visible_objectives(engine: Engine, objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """The objectives with at least one group that the reader may see."""
    access = access_of(engine)
    if access is None or not access.limits_rows:
        return tuple(objectives)
    bases = {groups.base(each) for each in access.slos}
    return tuple(each for each in objectives if each.name in bases)


def is_visible(objective: Objective, access: Access) -> bool:
    """Return whether a reader may see all requests that an objective counts.

    `objective` may also be a single group of an objective."""
    indicator = objective.indicator
    if not isinstance(indicator, GoodEvents):
        return False  # a Prometheus query may count any request
    labels: dict[str, str | None] = {
        each.field: str(each.value)
        for each in (conjuncts(indicator.where) if indicator.where else ())
        if isinstance(each, FieldComparison) and each.operator == "=="
    }
    if isinstance(indicator, GoodProbes):  # probes have no tenant
        return access.models is None or labels.get("model") in access.models
    if objective.group and indicator.part and indicator.part.group != groups.other(indicator.by):
        labels |= dict(objective.group)
    return access.allows(labels)
