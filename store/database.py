"""Open a database from its URL, and create or upgrade the schema."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError

from store import dialects, migrations
from store.access.restricted import READER, restricted
from store.dialects import FORMS, Dialect
from store.migrations import STATE, TELEMETRY, Schema
from store.sqlite_uri import in_writable_folder
from store.state import attach, separate_state, state_of
from store.state_copy import link_state
from store.state_link import check_not_linked, check_reader, read_link
from telemetry.database_urls import (
    DEFAULT_URL,
    ENVIRONMENT_KEY,
    STATE_ENVIRONMENT_KEY,
    default_state_url,
    default_url,
)
from telemetry.store_errors import DatabaseMissing, NotAllowed, StoreError

BUSY_TIMEOUT_S = 5.0
_URL: Final = "tailspan_url"


def _ignore(_message: str) -> None: ...


def open_database(
    url: str | None = None,
    state_url: str | None = None,
    *,
    create: bool = True,
    busy_timeout_s: float = BUSY_TIMEOUT_S,
    report: Callable[[str], None] = _ignore,
) -> Engine:
    """Open a database and the database of its state (`store.state`). Create or upgrade the schemas.

    Args:
        url: None for `default_url()`.
        state_url: a separate database for the state. None for `default_state_url()`.
        create: create what is missing and upgrade an older schema. If false, open for reading.
        busy_timeout_s: maximum wait for another process's lock.
        report: called at the start and the end of an upgrade or a copy of the state, which may take
            minutes.

    Returns: the database, restricted to what `READER` may see. For reading, a state database that
    does not respond raises StoreUnavailable only when it is used.

    Raises:
        NotAllowed: `READER` is set, and `create` is true.
        DatabaseMissing: there is no database, and `create` is false.
        StoreError: the URL is not supported, the state is in another database, or this version of
            Tailspan cannot use the database. Also raised if the database needs an upgrade, and
            `create` is false.
    """
    reader = READER.get()
    if reader is not None and create:
        raise NotAllowed("a reader cannot create or upgrade a database")
    opened = _opened(url, state_url or default_state_url(), create, busy_timeout_s, report)
    return restricted(opened, reader)


def _opened(
    url: str | None,
    state_url: str | None,
    create: bool,
    busy_timeout_s: float,
    report: Callable[[str], None],
) -> Engine:
    telemetry = _Opening(TELEMETRY_DATABASE, create, busy_timeout_s, report)
    separate = telemetry._replace(purpose=STATE_DATABASE)
    engine = telemetry.connect(default_url() if url is None else url)
    state = separate.connect(state_url) if state_url else engine
    if state is engine:
        telemetry.announce(engine, TELEMETRY, STATE)
    else:
        telemetry.announce(engine, TELEMETRY)
        separate.announce(state, STATE)
        attach(engine, state)
    with telemetry.errors(engine):
        telemetry.bring(engine, TELEMETRY)
        if state is engine:
            check_not_linked(engine, name_of(engine))
            telemetry.bring(engine, STATE)
            return engine
    with separate.errors(engine):
        separate.bring_state(engine, state)
    return engine


class DatabasePurpose(NamedTuple):
    """What a database is for: telemetry or the state."""

    what: str
    options: str
    forms: tuple[str, ...]
    example: str
    prefix: str

    def can_use(self, dialect: Dialect) -> bool:
        """Return whether a database of this dialect can have this purpose. The state needs
        transactions."""
        return self is TELEMETRY_DATABASE or not dialect.ADDITIVE


TELEMETRY_DATABASE: Final = DatabasePurpose(
    "database", f"--database or {ENVIRONMENT_KEY}", FORMS, DEFAULT_URL, ""
)
STATE_DATABASE: Final = DatabasePurpose(
    *("state database", f"--state-url or {STATE_ENVIRONMENT_KEY}", FORMS[:2]),
    *("sqlite:///var/state.db", "--state-url "),
)


class _Opening(NamedTuple):
    purpose: DatabasePurpose
    create: bool
    timeout_s: float
    report: Callable[[str], None]

    def connect(self, url: str) -> Engine:
        """An engine that has not connected yet."""
        parsed, dialect = _parse(url, self.purpose)
        try:
            engine = dialect.connect(parsed, create=self.create, timeout_s=self.timeout_s)
        except DatabaseMissing as error:
            raise self._missing(error) from error
        engine.update_execution_options(**{_URL: url})
        return engine

    def announce(self, engine: Engine, *schemas: Schema) -> None:
        """Announce the schema revision of this writer on each connection. An upgrade that this
        writer could not use is then refused."""
        if self.create:
            for schema in schemas:
                migrations.announce_to(engine, schema)

    @contextmanager
    def errors(self, engine: Engine) -> Iterator[None]:
        """Close the connections on an error, and raise an error of `telemetry.store_errors`."""
        try:
            yield
        except DatabaseMissing as error:
            engine.dispose()
            raise self._missing(error) from error
        except DatabaseError as error:
            engine.dispose()
            opened = engine if self.purpose is TELEMETRY_DATABASE else state_of(engine)
            why = dialects.of(opened).reason(error)
            path = dialects.of(opened).file(opened.url)
            if not self.create and path is not None and not in_writable_folder(path):
                why += (
                    f". To read the database, copy {path.name} and {path.name}-wal to a folder that"
                    " you may write"
                )
            raise StoreError(
                f"cannot open the {self.purpose.what} {name_of(opened)}: {why}"
            ) from error
        except StoreError:
            engine.dispose()
            raise

    def bring(self, engine: Engine, schema: Schema) -> None:
        if self.create:
            migrations.upgrade_schema(engine, name_of(engine), self.report, schema)
            dialects.of(engine).prepare(engine, self.timeout_s)
        else:
            migrations.check(engine, name_of(engine), schema)

    def bring_state(self, engine: Engine, state: Engine) -> None:
        """Prepare a separate state database and its link (`store.state_link`)."""
        name, state_name = name_of(engine), name_of(state)
        try:
            migrations.refuse_telemetry(state, state_name)
        except OperationalError:
            if self.create:
                raise
            return  # telemetry can be read even if the state database does not respond
        self.bring(state, STATE)
        if not self.create:
            check_reader(engine, state, name, state_name)
            return
        link = read_link(engine)
        if (link is None or not link.complete) and migrations.has(engine, STATE):
            self.bring(engine, STATE)  # the copied tables must be of this version
        link_state(engine, state, name, state_name, self.report)

    def _missing(self, error: DatabaseMissing) -> DatabaseMissing:
        return DatabaseMissing(
            f"{error}; `tailspan up` creates a database; to use another database, set"
            f" {self.purpose.options}"
        )


def urls(engine: Engine) -> tuple[str, str | None]:
    """Return the URLs of a database and of its separate state database, if there is one.

    They may contain passwords.
    """
    state = separate_state(engine)
    own: str = engine.get_execution_options()[_URL]
    return own, None if state is None else state.get_execution_options()[_URL]


def check_upgradable(url: str, purpose: DatabasePurpose = TELEMETRY_DATABASE) -> None:
    """Check that a database is missing or empty, or that this version can use or upgrade it.

    Changes neither the data nor the modes of the files.

    Raises:
        StoreError: the URL is not supported, or the check failed.
    """
    opening = _Opening(purpose, create=False, timeout_s=BUSY_TIMEOUT_S, report=_ignore)
    schema = TELEMETRY if purpose is TELEMETRY_DATABASE else STATE
    try:
        engine = opening.connect(url)
    except DatabaseMissing:
        return
    with opening.errors(engine):
        migrations.check_upgradable(engine, name_of(engine), schema)
    engine.dispose()


def masked_url(engine: Engine) -> str:
    """The database's URL without password and options, for logs and messages."""
    return _without_secrets(engine.url)


def folder(engine: Engine) -> Path:
    """The folder for files that belong to the database. It may not exist yet."""
    return dialects.of(engine).folder(engine.url)


def database_file(url: str, purpose: DatabasePurpose = TELEMETRY_DATABASE) -> Path | None:
    """The path of a SQLite database, or None for a database on a server.

    Raises:
        StoreError: the URL is not supported.
    """
    parsed, dialect = _parse(url, purpose)
    return dialect.file(parsed)


def name_of(engine: Engine) -> str:
    """The name of a database in messages, without a password."""
    return dialects.of(engine).name(engine.url)


def _parse(url: str, purpose: DatabasePurpose) -> tuple[URL, Dialect]:
    allowed = f"allowed: {' or '.join(purpose.forms)}, for instance {purpose.example}"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # A malformed URL can contain a password, so hide all text before an @.
        masked_url = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
        raise StoreError(
            f"{purpose.prefix}{masked_url!r} is not a database URL; {allowed}"
        ) from error
    if parsed.username is not None and url.count("@") > 1:
        # With several @, the end of the password is ambiguous.
        raise StoreError(
            f"the {purpose.what} URL contains more than one @; write %40 for an @ in the password"
        )
    masked_url = _without_secrets(parsed)
    dialect = dialects.named(parsed.get_backend_name())
    if dialect is None or parsed.drivername not in dialect.DRIVERS or not purpose.can_use(dialect):
        raise StoreError(
            f"{purpose.prefix}{masked_url!r}: {parsed.drivername} is not supported; {allowed}"
        )
    if why := dialect.refusal(parsed):
        raise StoreError(f"{purpose.prefix}{masked_url!r}: {why}; {allowed}")
    return parsed, dialect


def _without_secrets(url: URL) -> str:
    return url.difference_update_query(url.query).render_as_string(hide_password=True)
