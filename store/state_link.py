"""Link the database of the telemetry to the separate database of its state.

Both databases store the same random id, and Tailspan checks that the ids are equal. Without the
check, a wrong URL would mix two installations. A collector without the URL would send each
notification a second time.
"""

from secrets import token_hex
from typing import NamedTuple

from sqlalchemy import Boolean, Column, Connection, Engine, Table, Text, insert, select

from store import dialects
from store.connections import reading, writing
from store.schema import METADATA, STATE_METADATA
from telemetry.store_errors import StoreError

LINK = Table(
    "state_link",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("state_id", Text, nullable=False),
    Column("shown", Text, nullable=False),
    Column("complete", Boolean, nullable=False),
)
"""A table with at most one row: the state database's id, its URL without secrets, and whether the
copy is complete."""
IDENTITY = Table("state_identity", STATE_METADATA, Column("state_id", Text, primary_key=True))
"""A table with at most one row: the id of this database. It exists only in a separate database of
the state."""
_NAME = "state"


class StateLink(NamedTuple):
    """The separate database of the state, as the database of the telemetry records it."""

    state_id: str
    shown: str
    complete: bool


def read_link(engine: Engine) -> StateLink | None:
    """The link to the separate database of the state, or None."""
    with reading(engine) as connection:
        row = connection.execute(select(LINK.c.state_id, LINK.c.shown, LINK.c.complete)).first()
    return None if row is None else StateLink(*row)


def store_link(engine: Engine, link: StateLink) -> None:
    """Store the link."""
    with writing(engine, fenced=False) as connection:
        dialects.of(engine).upsert(connection, LINK, [{"name": _NAME, **link._asdict()}])


def new_link(shown: str) -> StateLink:
    """A new link. The state is not copied yet."""
    return StateLink(token_hex(16), shown, complete=False)


def identity(connection: Connection) -> str | None:
    """The id of a state database, or None if the database is new."""
    found: str | None = connection.scalar(select(IDENTITY.c.state_id))
    return found


def store_identity(connection: Connection, state_id: str) -> None:
    """Store the id of a new state database."""
    connection.execute(insert(IDENTITY).values(state_id=state_id))


def check_not_linked(engine: Engine, name: str) -> None:
    """Check that the state is not in another database.

    Raises:
        StoreError: the state is in another database. The message names that database.
    """
    link = read_link(engine)
    if link is not None:
        raise StoreError(
            f"the state of {name} is in {link.shown}: set --state-url or TAILSPAN_STATE_URL to this"
            " database"
        )


def check_reader(engine: Engine, state: Engine, name: str, state_name: str) -> None:
    """Check that two databases belong together, and that the state has been copied.

    Raises:
        StoreError: the databases do not belong together, or the state has not been copied.
    """
    with reading(state) as connection:
        found = identity(connection)
    if not check_linked(read_link(engine), found, name, state_name):
        raise StoreError(
            f"the state of {name} has not been copied to {state_name} yet; start `tailspan up` with"
            " this --state-url"
        )


def check_linked(link: StateLink | None, found: str | None, name: str, state_name: str) -> bool:
    """Check that two databases belong together.

    Returns: False if neither database is linked yet, or if a copy was interrupted.

    Raises:
        StoreError: one of them belongs to a third database.
    """
    if link is None:
        if found is None:
            return False
        raise StoreError(
            f"{state_name} belongs to a different database, not to {name}; set an empty"
            " database with --state-url"
        )
    if found == link.state_id:
        return link.complete
    if found is None and not link.complete:
        return False
    what = "is empty" if found is None else "belongs to another database"
    raise StoreError(
        f"the state of {name} is in {link.shown}, but {state_name} {what}; set --state-url or"
        " TAILSPAN_STATE_URL to the database with this state. If that database is lost: stop all"
        f" collectors, empty the table {LINK.name} in {name}, and set an empty database"
    )
