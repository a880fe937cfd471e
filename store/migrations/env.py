"""Run Alembic's migrations in the caller's transaction. Alembic executes this script."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import LargeBinary

from store.migrations import REVISION
from store.migrations.all_tables import METADATA


def _without_variants(kind: str, item: Any, _: object) -> str | Literal[False]:
    """Render a packed column as plain bytes, because revisions do not run on ClickHouse."""
    return "sa.LargeBinary()" if kind == "type" and isinstance(item, LargeBinary) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION.name,
    # SQLite can roll back a change of the schema, and `exclusively` has locked the database.
    transactional_ddl=True,
    render_as_batch=True,
    render_item=_without_variants,
)
with context.begin_transaction():
    context.run_migrations()
