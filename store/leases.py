"""Manage leases: only the collector that holds the lease of a task performs the task.

A lease is a row with its holder, a token and an expiry. All times are from the database's clock.
The holder renews the lease every `BEAT_S`. After `EXPIRES_S` without a renewal, a second collector
takes the lease with a higher token.

A process can be paused, and continue after its lease was taken. Therefore, every transaction inside
`acting` ends with a check (`connections.FENCE`). The check locks the lease's row until the commit.
So a collector without the lease commits nothing. A new holder sees everything that the previous
holder committed.

If the state has a separate database (`store.state`), the leases are in that database, and the check
is a second transaction there. ClickHouse has no transactions, so the lease is also checked before
each write (docs/decisions/095-the-state-has-its-own-database.md).

In SQLite, only one process writes, and it always holds every lease. If ClickHouse stores the state
too, there are no leases. With any database, a process that has given up its leases writes nothing
inside `acting`, except results of notifications. So its threads end soon, and the process can exit.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    Text,
    and_,
    case,
    cast,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from store import dialects
from store.connections import FENCE, reading, store_errors
from store.errors import LeaseLost
from store.schema import STATE_METADATA
from store.state import state_of

EVALUATION: Final = "evaluation"
NOTIFICATION: Final = "notification"
RETENTION: Final = "retention"

BEAT_S: Final = 3.0
"""Seconds between two renewals, and between two attempts to take a lease."""
EXPIRES_S: Final = 15.0
"""If a lease was not renewed for this long, a different collector can take it. A dead holder is
replaced within `EXPIRES_S + BEAT_S` = 18 s."""
_LOCK_WAIT: Final = "2s"
"""Maximum wait for a lease's row while its holder commits."""

LEASES: Final = Table(
    "leases",
    STATE_METADATA,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_unix_ms", BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class LeaseTerm:
    """A period of holding a lease without interruption."""

    lease: str
    token: int


class Leases:
    """The leases that this process holds or waits for. Thread-safe.

    Call `beat` every `BEAT_S` from a separate thread. `elapsed_s` is a monotonic clock that
    advances while the process is paused.
    """

    def __init__(
        self,
        engine: Engine,
        names: Sequence[str] = (EVALUATION, NOTIFICATION, RETENTION),
        *,
        elapsed_s: Callable[[], float] = time.monotonic,
        expires_s: float = EXPIRES_S,
    ) -> None:
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"
        self.names = tuple(sorted(names))
        state = state_of(engine)
        self.exclusive = dialects.of(state).SINGLE_WRITER or dialects.of(state).LEASES
        self.shared = dialects.of(state).LEASES
        self.state = state
        self._elapsed_s = elapsed_s
        self._expires_s = expires_s
        self._held: Mapping[str, tuple[LeaseTerm, float]] = {}
        """Expiry in monotonic time."""
        self._connection: Connection | None = None
        self.given_up = False
        """Whether this process has given up its leases."""

    def term(self, name: str) -> LeaseTerm | None:
        """Return the current term of a lease, or None if this process does not hold it."""
        if not self.shared:
            return None if self.given_up else LeaseTerm(name, 0)
        term, until_s = self._held.get(name, (None, 0.0))
        return term if self._elapsed_s() < until_s else None

    @contextmanager
    def acting(self, name: str) -> Iterator[LeaseTerm | None]:
        """Act as the holder of a lease until the end of the `with` block.

        Yields: the term, or None if this process does not hold the lease. After the term's end,
        each `connections.writing` in the block raises LeaseLost. After `release`, it also raises
        LeaseLost, unless the lease is `NOTIFICATION`.
        """
        term = self.term(name)
        if term is None:
            yield None
            return
        token = FENCE.set(_TermFence(self, term))
        try:
            yield term
        finally:
            FENCE.reset(token)

    def beat(self) -> None:
        """Renew the held leases, and take the leases that are free or expired."""
        if not self.shared:
            return
        # This time is taken before the query, so the expiry in this process is earlier than the
        # expiry in the database. So this process stops before another process can take the lease.
        until_s = self._elapsed_s() + self._expires_s
        try:
            with store_errors(self.state, "written"):
                tokens = self._take(self._dedicated())
        except BaseException:
            self._disconnect()
            raise
        self._held = {name: (LeaseTerm(name, token), until_s) for name, token in tokens.items()}

    def release(self) -> None:
        """Give up all leases for good, so that other collectors can take them at their next
        `beat`."""
        self.given_up = True
        self._held = {}
        if not self.shared:
            return
        own = update(LEASES).where(LEASES.c.holder == self.holder).values(expires_unix_ms=0)
        try:
            with store_errors(self.state, "written"):
                self._dedicated().execute(own)
        finally:
            self._disconnect()

    def _take(self, connection: Connection) -> dict[str, int]:
        now = now_unix_ms()
        free = LEASES.c.expires_unix_ms <= now
        known = {
            row.name: row.holder == self.holder or row.free
            for row in connection.execute(
                select(LEASES.c.name, LEASES.c.holder, free.label("free"))
            )
        }
        due = [name for name in self.names if known.get(name, True)]
        if not due:
            return {}
        until = now + round(self._expires_s * 1_000)
        new = insert(LEASES).values(
            [
                {"name": name, "holder": self.holder, "token": 1, "expires_unix_ms": until}
                for name in due
            ]
        )
        own = LEASES.c.holder == new.excluded.holder
        taken = new.on_conflict_do_update(
            index_elements=[LEASES.c.name],
            set_={
                "holder": new.excluded.holder,
                "token": case((own, LEASES.c.token), else_=LEASES.c.token + 1),
                "expires_unix_ms": new.excluded.expires_unix_ms,
            },
            where=own | free,
        ).returning(LEASES.c.name, LEASES.c.token)
        return {row.name: row.token for row in connection.execute(taken)}

    def check(self, connection: Connection, term: LeaseTerm) -> None:
        """Raise LeaseLost if another collector has taken the lease. Otherwise lock the lease's row
        until the end of the transaction."""
        # An expired lease stays held until another collector takes it. Until the commit, the lock
        # keeps other collectors from taking it.
        own = and_(
            LEASES.c.name == term.lease,
            LEASES.c.holder == self.holder,
            LEASES.c.token == term.token,
        )
        held = select(LEASES.c.token).where(own).with_for_update(read=True)
        if connection.execute(held).first() is None:
            raise LeaseLost(f"another collector has taken the lease {term.lease!r}")

    def _dedicated(self) -> Connection:
        """Return a separate connection, so that renewals do not wait for a free connection of the
        pool."""
        if self._connection is None:
            self._connection = self.state.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._connection.exec_driver_sql(f"SET lock_timeout = '{_LOCK_WAIT}'")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()


@dataclass(frozen=True, slots=True)
class _TermFence:
    leases: Leases
    term: LeaseTerm

    def before(self, engine: Engine) -> None:
        # The result of a message that was sent must still be stored. Otherwise, the message would
        # be sent again.
        if self.leases.given_up and self.term.lease != NOTIFICATION:
            raise LeaseLost(f"this process has given up the lease {self.term.lease!r}")
        if self.leases.shared and dialects.of(engine).ADDITIVE:
            # Without transactions, each statement takes effect immediately.
            with reading(self.leases.state) as connection:
                self.leases.check(connection, self.term)

    @contextmanager
    def until_commit(self, connection: Connection) -> Iterator[None]:
        state = self.leases.state
        if not self.leases.shared:
            yield
        elif connection.engine is state:
            self.leases.check(connection, self.term)
            yield
        else:
            with store_errors(state, "read"), state.begin() as own:
                self.leases.check(own, self.term)
                yield


def now_unix_ms() -> ColumnElement[int]:
    """The time of the database."""
    return cast(func.extract("epoch", func.clock_timestamp()) * 1_000, BigInteger)
