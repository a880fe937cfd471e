"""Join received rows with the stored rows of their requests, for counters of objectives."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlalchemy import Engine

from store.joined.prefill_engines import known_roles
from store.joined.user_requests import COLUMNS, user_requests
from telemetry.joined_request import EngineRole


class ReceivedRows:
    """Replaces the received rows of engines by one row for each user's request."""

    columns: Sequence[str] = COLUMNS

    def __init__(self, engine: Engine, clock_unix_ns: Callable[[], int]) -> None:
        self._engine = engine
        self._clock_unix_ns = clock_unix_ns

    def are_apart(self) -> bool:
        """Whether a server does only prefills, so that a request has several rows."""
        return EngineRole.PREFILL in known_roles(self._engine, self._clock_unix_ns()).values()

    def joined(self, rows: pa.Table) -> pa.Table:
        """The rows of users' requests. See `user_requests`."""
        return user_requests(self._engine, rows, known_roles(self._engine, self._clock_unix_ns()))
