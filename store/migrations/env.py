"""What Alembic runs to get at the database; the transaction is the caller's."""

from alembic import context

from store.migrations import REVISION
from store.migrations.all_tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=REVISION.name,
    # SQLite can take back a change of the schema, and its lock was taken by `exclusively`.
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
