"""Open a database from its URL, and create or upgrade the schema."""

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
"""The default URL, relative to the working directory."""

BUSY_TIMEOUT_S = 5.0
"""Maximum time that a connection waits for another process to finish a write."""


def default_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return `TAILSPAN_DATABASE_URL`, or the default SQLite database."""
    return environ.get(ENVIRONMENT_KEY) or DEFAULT_URL


def _ignore(_message: str) -> None: ...


def open_database(
    url: str | None = None,
    *,
    create: bool = True,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    report: Callable[[str], None] = _ignore,
) -> Engine:
    """Open a database, and create or upgrade its schema.

    Args:
        url: a SQLAlchemy URL, or None for `default_url()`.
        create: whether to create a missing folder, file or schema, and to upgrade an older schema.
            If false, the database is opened for reading, and a missing file or an older schema is
            an error.
        busy_timeout_s: maximum time to wait for the lock of another process.
        report: called with a message at the start and at the end of an upgrade, which may take
            minutes.

    Raises:
        DatabaseMissing: there is no database, and `create` is false.
        StoreError: the URL is not supported, or the database was not created by this or an older
            version of Tailspan, or it needs an upgrade and `create` is false.
    """
    parsed, dialect = _parse(url if url is not None else default_url())
    name = dialect.name(parsed)
    try:
        engine = dialect.connect(parsed, create=create, timeout_s=busy_timeout_s)
    except DatabaseMissing as error:
        raise _missing(error) from error
    try:
        if create:
            migrations.bring_up_to_date(engine, name, report)
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
    """Return the database's URL without password and options, for logs and messages."""
    return _without_secrets(engine.url)


def folder(engine: Engine) -> Path:
    """Return the folder for files that belong to the database. The folder may not exist yet."""
    return dialects.of(engine).folder(engine.url)


def database_file(url: str) -> Path | None:
    """Return the path of a SQLite database, or None for a database on a server.

    Raises:
        StoreError: the URL is not supported.
    """
    parsed, dialect = _parse(url)
    return dialect.file(parsed)


def _missing(error: DatabaseMissing) -> DatabaseMissing:
    return DatabaseMissing(
        f"{error}; `tailspan up` creates a database; to use another database, set --database or"
        f" {ENVIRONMENT_KEY}"
    )


def _parse(url: str) -> tuple[URL, Dialect]:
    allowed = f"allowed: {' or '.join(FORMS)}, for instance {DEFAULT_URL}"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # A malformed URL can contain a password too, so hide all text before an @.
        shown = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
        raise StoreError(f"{shown!r} is not a database URL; {allowed}") from error
    if parsed.username is not None and url.count("@") > 1:
        # With several @, the end of the password is ambiguous, so do not print the URL.
        raise StoreError(
            "the database URL contains more than one @; write %40 for an @ in the password"
        )
    shown = _without_secrets(parsed)
    dialect = dialects.named(parsed.get_backend_name())
    if dialect is None or parsed.drivername not in dialect.DRIVERS:
        raise StoreError(f"{shown!r}: {parsed.drivername} is not supported; {allowed}")
    if why := dialect.refusal(parsed):
        raise StoreError(f"{shown!r}: {why}; {allowed}")
    return parsed, dialect


def _without_secrets(url: URL) -> str:
    return url.difference_update_query(url.query).render_as_string(hide_password=True)
