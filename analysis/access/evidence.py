"""Restrict an explanation of slow requests and its evidence to what a reader may see."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine

from alerts.expression import comparisons
from alerts.objectives import GoodEvents, Objective
from analysis.access.visible_objectives import visible_objectives
from store.access.restricted import access_of, is_masked
from telemetry.store_errors import NotAllowed

_NAMES = frozenset({"tenant", "model", "lora", "route"})


def explained_where(engine: Engine, where: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The labels that select the requests to explain. If the reader may see only one tenant, the
    labels include this tenant.

    Raises:
        NotAllowed: the labels select requests that the reader may not see.
    """
    access = access_of(engine)
    if access is None or not access.by_tenant:
        return where
    tenants = access.tenants
    if tenants is not None and len(tenants) == 1 and "tenant" not in where:
        where = {**where, "tenant": min(tenants)}
    if access.selects(where):
        return where
    allowed = "one of your tenants" if tenants is None else ", ".join(sorted(tenants))
    raise NotAllowed(
        "your role does not allow an explanation of these requests: choose the requests of one"
        f" tenant; allowed: {allowed}"
    )


def require_all_tenants(engine: Engine, what: str) -> None:
    """Check that a reader may see the requests of all tenants. `what` is the subject of the error
    message, such as "a comparison".

    Raises:
        NotAllowed: the reader may not see the requests of all tenants.
    """
    access = access_of(engine)
    if access is not None and access.by_tenant and not is_masked(engine):
        raise NotAllowed(
            f"{what} needs the requests of all tenants of a server, which your role does not allow"
        )


def thresholds_for(engine: Engine, objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """The objectives whose latency thresholds a reader may apply.

    These are the visible objectives, and objectives that name no tenant, model, adapter or route.
    """
    access = access_of(engine)
    if access is None or not access.limits_rows:
        return tuple(objectives)
    visible = visible_objectives(engine, objectives)
    return tuple(each for each in objectives if each in visible or _is_general(each))


def _is_general(objective: Objective) -> bool:
    indicator = objective.indicator
    if not isinstance(indicator, GoodEvents):
        return False
    named = comparisons(indicator.where) if indicator.where else ()
    return _NAMES.isdisjoint(each.field for each in named)
