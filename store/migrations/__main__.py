"""Generate a new revision from the difference between the declared tables and all revisions.

python -m store.migrations "Store when engines started"
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command
from sqlalchemy import create_engine

from store.migrations import head
from store.migrations.alembic_config import config


def main() -> None:
    """Write a revision with the differences between all revisions and the declared tables."""
    if len(sys.argv) != 2:
        sys.exit('usage: python -m store.migrations "Sentence that describes the change"')
    with TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{Path(folder)}/empty.db")
        with engine.connect() as connection:
            alembic = config(connection)
            command.upgrade(alembic, "head")
            command.revision(
                alembic, sys.argv[1], autogenerate=True, rev_id=f"{int(head()) + 1:04}"
            )
        engine.dispose()


if __name__ == "__main__":
    main()
