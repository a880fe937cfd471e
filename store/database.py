"""Opens a database: the supported URLs, and the state in which a database is opened."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError

from store import dialects, migrations
from store.dialects import FORMS, Dialect
from store.errors import DatabaseMissing, StoreError

ENVIRONMENT_KEY = "TAILSPAN_DATABASE_URL"
DEFAULT_URL = "sqlite:///var/tailspan.db"
"""Relative to the working directory."""

BUSY_TIMEOUT_S = 5.0
"""How long a connection waits for another process's write before it gives up."""


def default_url(environ: Mapping[str, str] = os.environ) -> str:
    """`TAILSPAN_DATABASE_URL`, or the embedded database of this working directory."""
    return environ.get(ENVIRONMENT_KEY) or DEFAULT_URL


def _nobody(_said: str) -> None:
    """Ignore the message."""


def open_database(
    url: str | None = None,
    *,
    create: bool = True,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    tell: Callable[[str], None] = _nobody,
) -> Engine:
    """Open a database, with its schema made if it is new and upgraded if it is older.

    Args:
        url: a SQLAlchemy URL; None for `default_url()`.
        create: make what is missing (the folder, the file, the schema, its newer revisions);
            without it nothing is written, and what is missing is an error.
        busy_timeout_s: how long to wait for another's lock.
        tell: receives a sentence when an upgrade begins, which may take minutes, and at its end.

    Raises:
        DatabaseMissing: nothing to read, and `create` is false.
        StoreError: an unsupported URL, a database that is not Tailspan's, one of a newer
            Tailspan, or, where `create` is false, of an older one.
    """
    parsed, dialect = _parse(url if url is not None else default_url())
    name = dialect.name(parsed)
    try:
        engine = dialect.connect(parsed, create=create, timeout_s=busy_timeout_s)
    except DatabaseMissing as error:
        raise _missing(error) from error
    try:
        if create:
            migrations.bring_up_to_date(engine, name, tell)
            dialect.settle(engine, busy_timeout_s)
        else:
            migrations.check(engine, name)
    except DatabaseMissing as error:
        engine.dispose()
        raise _missing(error) from error
    except DatabaseError as error:
        engine.dispose()
        raise StoreError(f"cannot open the database {name}: {dialect.reason(error)}") from error
    except StoreError:
        engine.dispose()
        raise
    return engine


def shown(engine: Engine) -> str:
    """The database's URL for people and logs: without its password and options."""
    return _without_secrets(engine.url)


def folder(engine: Engine) -> Path:
    """Where files beside the database belong; it may have to be made."""
    return dialects.of(engine).folder(engine.url)


def database_file(url: str) -> Path | None:
    """The file that a database is; None where a server keeps it.

    Raises:
        StoreError: an unsupported URL.
    """
    parsed, dialect = _parse(url)
    return dialect.file(parsed)


def _missing(error: DatabaseMissing) -> DatabaseMissing:
    return DatabaseMissing(
        f"{error}; `tailspan up` makes one, or name another with --database or {ENVIRONMENT_KEY}"
    )


def _parse(url: str) -> tuple[URL, Dialect]:
    allowed = f"allowed: {' or '.join(FORMS)}, for instance {DEFAULT_URL}"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # It may hold a password all the same: what stands before an @ is not repeated.
        shown = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
        raise StoreError(f"{shown!r} is no database URL; {allowed}") from error
    if parsed.username is not None and url.count("@") > 1:
        # Which of them ends the password is a guess, so nothing is repeated.
        raise StoreError("the database URL holds more than one @; in a password, write %40 for it")
    shown = _without_secrets(parsed)
    dialect = dialects.named(parsed.get_backend_name())
    if dialect is None or parsed.drivername not in dialect.DRIVERS:
        raise StoreError(f"{shown!r}: {parsed.drivername} is not supported; {allowed}")
    if why := dialect.refusal(parsed):
        raise StoreError(f"{shown!r}: {why}; {allowed}")
    return parsed, dialect


def _without_secrets(url: URL) -> str:
    return url.difference_update_query(url.query).render_as_string(hide_password=True)
