"""Compare the schema of a database with the declared tables, for the tests."""

import re
from typing import Any, Final

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData

from store.migrations import STATE, TELEMETRY, Schema
from store.migrations.older_versions import OLDEST

_PARTITION: Final = re.compile("_(earlier|[0-9]{8})$")


def drift(connection: Connection, *schemas: Schema) -> list[Any]:
    """The changes that Alembic proposes. An up-to-date schema needs no changes."""
    found = schemas or (TELEMETRY, STATE)
    own = {OLDEST.name, *(schema.revision.name for schema in found)}
    context = MigrationContext.configure(
        connection,
        opts={"include_name": lambda name, *_: name not in own and not _is_partition(name)},
    )
    declared = MetaData()
    for schema in found:
        for table in schema.metadata.sorted_tables:
            table.to_metadata(declared)
    return list(compare_metadata(context, declared))


def _is_partition(name: str | None) -> bool:
    return name is not None and _PARTITION.search(name) is not None
