"""What Alembic runs to get at the database; the transaction is the caller's."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import LargeBinary

from store.migrations import REVISION
from store.migrations.all_tables import METADATA


def _without_variants(kind: str, item: Any, _: object) -> str | Literal[False]:
    """Write a packed column as plain bytes: revisions do not run on ClickHouse."""
    return "sa.LargeBinary()" if kind == "type" and isinstance(item, LargeBinary) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION.name,
    # SQLite can take back a change of the schema, and its lock was taken by `exclusively`.
    transactional_ddl=True,
    render_as_batch=True,
    render_item=_without_variants,
)
with context.begin_transaction():
    context.run_migrations()
