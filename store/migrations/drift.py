"""Compare a database with the declared tables, for the tests."""

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from store.migrations import REVISION
from store.migrations.all_tables import METADATA


def drift(connection: Connection) -> list[Any]:
    """Return the changes that Alembic would make; empty without differences."""
    context = MigrationContext.configure(connection, opts={"version_table": REVISION.name})
    return list(compare_metadata(context, METADATA))
