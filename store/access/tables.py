"""Declare, for each table, which rows and columns a reader may see. Other tables cannot be read."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    case,
    false,
    literal,
    not_,
    or_,
    select,
)

from store.rollups.tables import GROUPINGS
from store.schema import IN_FLIGHT, REQUESTS, STARTS
from telemetry.access import OTHERS, Access, Grant
from telemetry.probes import PROBE_TENANT

RAW: Final = "raw_"
"""Prefix of columns with the ids of all requests, and of tables with all rows, including hidden
ones. Only `store.requests.best_source` uses them, for comparisons. No query returns them."""

_DOLLARS: Final = frozenset({"cost_usd", "priced_by"})
_IDS: Final = ("trace_id", "span_id", "request_id")
_KEPT_TEXTS: Final = frozenset(
    {"source", "basis", "outcome", "replica", "config", "model", "region", "kv_loaded_tier"}
)
"""The text columns that stay visible in a masked row. They describe the server, or have a few fixed
values."""
OTHER_ADAPTER: Final = "(other adapter)"

Rule = Callable[[Table, Access], Select[Any] | None]
"""A function that returns the query that replaces the table. It returns None if the whole table is
visible."""


def _everything(_table: Table, _access: Access) -> None:
    """Show all rows."""


def _nothing(table: Table, access: Access) -> Select[Any] | None:
    return select(*table.c).where(false()) if access.limits_rows else None


def _requests(table: Table, access: Access) -> Select[Any] | None:
    where = visible_rows(table, access) if access.limits_rows else None
    return _selected(table, access, where)


def _servers(table: Table, access: Access) -> Select[Any] | None:
    return _selected(table, access, served(table, access))


def _gpus(table: Table, access: Access) -> Select[Any] | None:
    """Show a GPU if its replica has started a visible model."""
    if access.models is None:
        return None
    replicas = select(STARTS.c.replica).where(STARTS.c.model.in_(sorted(access.models)))
    return _selected(table, access, table.c.replica.in_(replicas))


def _rollups(table: Table, access: Access) -> Select[Any] | None:
    """Hide the totals over all tenants and models."""
    if not access.limits_rows:
        return _selected(table, access, None)
    hidden = [name for name in ("requests", "overflowed") if name in table.c]
    where = table.c.grouping.in_(visible_groupings(access))
    return _selected(table, access, where, frozenset(hidden))


def _names(table: Table, access: Access) -> Select[Any] | None:
    if not access.limits_rows:
        return None
    label, value = table.c.label, table.c.value
    conditions: list[ColumnElement[bool]] = [label.in_(("region", "replica"))]
    for name, visible in (("tenant", access.tenants), ("model", access.models)):
        of_label = label == name
        conditions.append(of_label if visible is None else of_label & value.in_(sorted(visible)))
    # an adapter or route belongs to the tenant whose requests used it first
    if access.tenants is not None:
        own = table.c.owner.in_(sorted(access.tenants))
        conditions.append(label.in_(("lora", "route")) & own)
    return select(*table.c).where(or_(*conditions))


def _bins(table: Table, access: Access) -> Select[Any] | None:
    if not access.limits_rows:
        return None
    return _selected(table, access, table.c.grouping.in_(visible_groupings(access)))


def _by_slo(table: Table, access: Access) -> Select[Any] | None:
    if not access.limits_rows:
        return None
    return select(*table.c).where(table.c.slo.in_(sorted(access.slos)))


def _by_definition(table: Table, access: Access) -> Select[Any] | None:
    if not access.limits_rows:
        return None
    visible = table.c.definition.in_(sorted(access.definitions))
    return select(*table.c).where(visible)


RULES: Final[Mapping[str, Rule]] = {
    "requests": _requests,
    "requests_in_flight": _requests,
    "cache_lookups": _requests,
    "rollup_labels": _requests,
    "engine_samples": _servers,
    "engine_starts": _servers,
    "cold_starts": _servers,
    "probes": _servers,
    "gpu_samples": _gpus,
    "rollups": _rollups,
    "rollup_bins": _bins,
    "rollup_names": _names,
    # Only bills need these counters, which cover all engines and GPUs.
    "engine_stretches": _nothing,
    "gpu_stretches": _nothing,
    "slo_incidents": _by_slo,
    "slo_evaluations": _by_slo,
    "slo_counts": _by_definition,
    "slo_simulated_counts": _by_definition,
    "slo_counted": _by_definition,
    # These texts may contain the name of any tenant.
    "incident_answers": _nothing,
    "slo_notifications": _nothing,
    "predictions": _nothing,
    # processes have no tenant
    "application_operations": _nothing,
    # Only the collector reads these tables.
    "clock_corrections": _nothing,
    "sender_clocks": _nothing,
    # These tables contain only times, widths and random ids.
    "rollup_marks": _everything,
    "rollup_state": _everything,
    "sample_marks": _everything,
    "sample_state": _everything,
    "slo_marks": _everything,
    "leases": _everything,
    "state_link": _everything,
    "state_identity": _everything,
}


def masked(table: Table, access: Access) -> Select[Any]:
    """Select all requests to visible models. In a hidden request, the tenant is `OTHERS`, and all
    other names are empty."""
    own = visible_rows(table, access)
    columns: list[ColumnElement[Any]] = []
    for column in table.c:
        if column.key in _DOLLARS:
            columns.append(_null(column))
        elif column.key == "tenant":
            tenant = case((or_(own, column == PROBE_TENANT), column), else_=literal(OTHERS, Text()))
            columns.append(tenant.label(column.key))
        elif column.key in _IDS:
            columns.append(case((own, column), else_=literal("", Text())).label(column.key))
            columns.append(column.label(f"{RAW}{column.key}"))
        elif column.key == "lora":
            other = case((column.is_not(None), literal(OTHER_ADAPTER, Text())))
            columns.append(case((own, column), else_=other).label(column.key))
        elif isinstance(column.type, Text) and column.key not in _KEPT_TEXTS:
            columns.append(case((own, column)).label(column.key))
        else:
            columns.append(column)
    statement = select(*columns)
    where = served(table, access)
    return statement if where is None else statement.where(where)


MASKED: Final = frozenset({REQUESTS.name, IN_FLIGHT.name})


def visible_rows(table: Table, access: Access) -> ColumnElement[bool]:
    """The SQL condition for visible rows. It is never NULL."""
    return or_(*(_grant_condition(table, each) for each in access.grants))


def served(table: Table, access: Access) -> ColumnElement[bool] | None:
    """Return the SQL condition for rows with a visible model, or None if all models are visible."""
    return None if access.models is None else table.c.model.in_(sorted(access.models))


def _grant_condition(table: Table, grant: Grant) -> ColumnElement[bool]:
    conditions = [
        and_(column.is_not(None), column.in_(sorted(names)))
        for column, names in ((table.c.tenant, grant.tenants), (table.c.model, grant.models))
        if names is not None
    ]
    return and_(*conditions) if conditions else not_(false())


def visible_groupings(access: Access) -> list[int]:
    """The groupings of rollups that a reader may see, as indices in `GROUPINGS`.

    These groupings have the label `model`. If some tenants are hidden, they also have the label
    `tenant`.
    """
    needed = {"model", *(["tenant"] if access.by_tenant else [])}
    return [place for place, labels in enumerate(GROUPINGS) if needed <= set(labels)]


def _selected(
    table: Table,
    access: Access,
    where: ColumnElement[bool] | None,
    hidden: frozenset[str] = frozenset(),
) -> Select[Any] | None:
    hidden |= frozenset() if access.costs else _DOLLARS
    columns: list[ColumnElement[Any]] = [
        _null(column) if column.key in hidden else column for column in table.c
    ]
    if where is None:
        if not hidden & set(table.c.keys()):
            return None
        return select(*columns)
    return select(*columns).where(where)


def _null(column: ColumnElement[Any]) -> ColumnElement[Any]:
    # a plain NULL would have the type text in PostgreSQL
    return case((false(), column)).label(str(column.key))
