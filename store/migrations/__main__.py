"""Generate a new revision: the changes from the newest revision to the declared tables.

python -m store.migrations "Store when engines started"
python -m store.migrations --state "Store who acknowledged an incident"
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command
from sqlalchemy import create_engine

from store.migrations import STATE, TELEMETRY
from store.migrations.alembic_config import config


def main() -> None:
    """Run the command that the module's docstring describes."""
    words = sys.argv[1:]
    schema = STATE if words[:1] == ["--state"] else TELEMETRY
    if schema is STATE:
        del words[0]
    if len(words) != 1:
        sys.exit('usage: python -m store.migrations [--state] "Sentence that describes the change"')
    with TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{Path(folder)}/empty.db")
        with engine.connect() as connection:
            alembic = config(connection, schema)
            command.upgrade(alembic, "head")
            command.revision(
                alembic, words[0], autogenerate=True, rev_id=f"{int(schema.head()) + 1:04}"
            )
        engine.dispose()


if __name__ == "__main__":
    main()
