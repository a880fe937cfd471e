"""Restrict a SQLAlchemy engine: rewrite each query so that it returns only what its reader may see.

`_Rewriter` replaces each table by a subquery with the visible rows and columns. It refuses SQL text
and statements that write. It also refuses tables without a rule in `store.access.tables`.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    Alias,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    Engine,
    FromClause,
    Select,
    Table,
    TextClause,
    event,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ClauseElement, ColumnClause
from sqlalchemy.sql.selectable import TableClause, TextualSelect

from store.access.tables import MASKED, RAW, RULES, masked
from store.state import separate_state, use_state
from telemetry.access import Access
from telemetry.store_errors import NotAllowed

_REWRITER: Final = "tailspan_rewriter"
READER: Final[ContextVar[Access | None]] = ContextVar("reader", default=None)
"""What the current reader may see, or None if the reader may see everything. `open_database`
applies it."""
EVERY: Final = "*"
COMPARED: Final = "tailspan_compared"
"""Annotation of a column that a query compares but does not return."""


def restricted(engine: Engine, access: Access | None) -> Engine:
    """An engine for the same database that returns only what a reader may see. It cannot write."""
    if access_of(engine) is not None:
        raise NotAllowed("the database is restricted already")
    if access is None or not access.limits:
        return engine
    return _with_rewriter(engine, access, masks=False)


def with_masked_rows(engine: Engine) -> Engine:
    """An engine that also returns the hidden requests, with masked names (`tables.masked`).
    Explanations need them, because requests wait for requests of other tenants."""
    rewriter = _rewriter(engine)
    return engine if rewriter is None else rewriter.masked or engine


def is_masked(engine: Engine) -> bool:
    """Whether `with_masked_rows` returned this engine."""
    rewriter = _rewriter(engine)
    return rewriter is not None and rewriter.masks


def access_of(engine: Engine) -> Access | None:
    """Return what the reader of this database engine may see. None means everything."""
    rewriter = _rewriter(engine)
    return None if rewriter is None else rewriter.access


def compared(ids: ColumnElement[Any]) -> ColumnElement[Any]:
    """A column with the ids of all requests, for comparisons.

    A query must not return this column, because it contains ids of hidden requests.
    """
    return ids._annotate({COMPARED: True})


@cache
def with_all_rows(table: Table) -> FromClause:
    """The table with hidden rows, for comparisons. The result is cached, so that repeated calls
    produce the same SQL statement.

    A query must not return its columns.
    """
    return table.alias(f"{RAW}{table.name}")


def rewritten(engine: Engine, statement: Select[Any]) -> Select[Any]:
    """Restrict a statement. Reads that bypass SQLAlchemy's connections must call this function.

    Raises:
        NotAllowed: the statement cannot be restricted.
    """
    rewriter = _rewriter(engine)
    return statement if rewriter is None else rewriter.rewrite(statement)


def _with_rewriter(engine: Engine, access: Access, *, masks: bool) -> Engine:
    rewriter = _Rewriter(engine, access, masks=masks)
    found = engine.execution_options(**{_REWRITER: rewriter})
    event.listen(found, "before_execute", rewriter.before_execute, retval=True)
    event.listen(found, "before_cursor_execute", _refuse_text)
    state = separate_state(engine)
    if state is not None:
        use_state(found, _with_rewriter(state, access, masks=masks))
    return found


def _rewriter(engine: Engine) -> "_Rewriter | None":
    return engine.get_execution_options().get(_REWRITER)


class _Rewriter:
    def __init__(self, engine: Engine, access: Access, *, masks: bool) -> None:
        self.access = access
        self.masks = masks
        self.masked = (
            _with_rewriter(engine, access, masks=True) if access.by_tenant and not masks else None
        )
        self._replaced: dict[tuple[str, str], FromClause] = {}

    def before_execute(
        self,
        _connection: Connection,
        statement: Any,
        multiparams: Any,
        params: Any,
        _options: Mapping[str, Any],
    ) -> tuple[Any, Any, Any]:
        """Rewrite a statement before it is executed."""
        return self.rewrite(statement), multiparams, params

    def rewrite(self, statement: Any) -> Any:
        """The restricted statement."""
        if not isinstance(statement, Select | CompoundSelect):
            raise NotAllowed(f"a reader cannot run {type(statement).__name__}")
        found: Any = visitors.replacement_traverse(statement, {}, self._replacement)
        self._check(found)
        return found

    def _replacement(self, element: Any, **_: Any) -> Any:
        if isinstance(element, Table | Alias):
            return self._visible(element)
        if isinstance(element, Column):
            visible = self._visible(element.table)
            if visible is None:
                return None
            raw = f"{RAW}{element.key}"
            compared = COMPARED in element._annotations and raw in visible.c
            return visible.c[raw if compared else element.key]
        return None

    def _visible(self, given: Any) -> FromClause | None:
        table = given.element if isinstance(given, Alias) else given
        if not isinstance(table, Table):
            return None
        key = table.name, given.name
        if key not in self._replaced:
            self._replaced[key] = self._subquery(table, given.name)
        return self._replaced[key]

    def _subquery(self, table: Table, name: str) -> FromClause:
        if name.startswith(RAW):
            return with_all_rows(table)
        rule = RULES.get(table.name)
        if rule is None:
            raise NotAllowed(f"a reader cannot read the table {table.name}")
        masks = self.masks and table.name in MASKED
        found = masked(table, self.access) if masks else rule(table, self.access)
        if found is None:
            return table if name == table.name else table.alias(name)
        return found.subquery(name)

    def _check(self, statement: Any) -> None:
        own = {id(each) for each in self._replaced.values()}
        waiting = [statement]
        for select in statement.selects if isinstance(statement, CompoundSelect) else [statement]:
            names = [str(getattr(each, "name", "")) for each in select.exported_columns]
            if any(name == EVERY or name.startswith(RAW) for name in names):
                raise NotAllowed("a reader cannot select all columns")
            tables = select.columns_clause_froms if isinstance(select, Select) else []
            if any(str(getattr(each, "name", "")).startswith(RAW) for each in tables):
                raise NotAllowed("a reader cannot select from all rows")
        while waiting:
            element = waiting.pop()
            if id(element) in own:
                continue
            _check_one(element)
            waiting += [each for each in element.get_children() if isinstance(each, ClauseElement)]


def _check_one(element: Any) -> None:
    textual = isinstance(element, TextClause | TextualSelect) or (
        # `count(*)` and `EXISTS (SELECT *)` are allowed. In them, SQLAlchemy treats `*` as a
        # literal.
        isinstance(element, ColumnClause) and element.is_literal and element.name != EVERY
    )
    if textual:
        raise NotAllowed("a reader cannot run SQL as text")
    if isinstance(element, TableClause):
        raise NotAllowed(f"a reader cannot read the table {element.name}")


def _refuse_text(
    _connection: Connection,
    _cursor: Any,
    _statement: str,
    _parameters: Any,
    context: Any,
    _many: bool,
) -> None:
    if context is None or context.compiled is None:
        raise NotAllowed("a reader cannot run SQL as text")
