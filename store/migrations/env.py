"""Run Alembic's migrations in the caller's transaction. Alembic executes this script."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import LargeBinary

from store.migrations import STATE, TELEMETRY, Schema
from store.migrations.older_versions import OLDEST

_schema: Schema = context.config.attributes["schema"]
_other = STATE if _schema is TELEMETRY else TELEMETRY


def _without_variants(kind: str, item: Any, _: object) -> str | Literal[False]:
    """Render a column of bytes without its variant for ClickHouse, which has no revisions. Return
    False for other items, so that Alembic renders them."""
    return "sa.LargeBinary()" if kind == "type" and isinstance(item, LargeBinary) else False


def _of_schema(name: str | None, kind: str, _: object) -> bool:
    others = {OLDEST.name, _other.revision.name, *_other.metadata.tables}
    return kind != "table" or name not in others


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=_schema.metadata,
    include_name=_of_schema,
    version_table=_schema.revision.name,
    # SQLite can roll back changes of the schema too, and `exclusively` holds the write lock
    transactional_ddl=True,
    render_as_batch=True,
    render_item=_without_variants,
)
with context.begin_transaction():
    context.run_migrations()
