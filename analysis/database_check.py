"""Check that a database and its state database can be read."""

from dataclasses import dataclass

from sqlalchemy import Engine

from analysis.database import opened_to_read
from store.alerting.incidents import read_overlapping
from store.columns.request_columns import slow_because
from store.database import masked_url
from store.queries import newest_unix_ns
from store.state import separate_state
from telemetry.store_errors import StoreUnavailable


@dataclass(frozen=True, slots=True)
class StateCheck:
    """A separate state database: its URL without password, and the reason why it does not respond,
    or None."""

    url: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """A database that can be read.

    Attributes:
        url: without password.
        slow_because: why many requests are read slowly, or None.
        newest_unix_ns: the time of the newest data, or None without data.
        state: a separate state database, or None.
    """

    url: str
    slow_because: str | None
    newest_unix_ns: int | None
    state: StateCheck | None


def check_database(url: str | None, state_url: str | None) -> DatabaseCheck:
    """Open and read a database.

    Raises:
        StoreError: the database cannot be read.
    """
    with opened_to_read(url, state_url) as engine:
        return DatabaseCheck(
            masked_url(engine), slow_because(engine), newest_unix_ns(engine), _state(engine)
        )


def _state(engine: Engine) -> StateCheck | None:
    state = separate_state(engine)
    if state is None:
        return None
    try:
        read_overlapping(engine, 0, 1)
    except StoreUnavailable as error:
        return StateCheck(masked_url(state), str(error))
    return StateCheck(masked_url(state), None)
