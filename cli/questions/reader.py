"""The reader who asks over the API or MCP, and the data that this reader may see."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from alerts.errors import AlertsError
from alerts.objectives import Objective
from alerts.openslo.reader import ENVIRONMENT_KEY, OBJECTIVES, load
from analysis import database
from analysis.access.audit_log import Interface, audit_log
from analysis.access.visible_objectives import access_with_objectives
from analysis.compare.question import SIDES
from telemetry.access import Access

_OF_ONE: Final = ("request_id", "trace_id", "span_id")
_FILTERS: Final = ("where", *(f"{side}-where" for side in SIDES))
"""The parameters that select requests by a label."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The identity of a reader, and the data that the reader may see.

    Attributes:
        access: the visible data. With None, all data is visible.
        who: the reader's name in the audit log.
    """

    access: Access | None = None
    who: str = "unknown"
    interface: Interface = Interface.API

    @classmethod
    def of(cls, message: Mapping[str, Any], interface: Interface) -> Self:
        """The reader in a message of `server.api.readers`.

        Raises:
            KeyError: the message contains no reader. It must not be answered.
        """
        reader = message["reader"]
        grants = reader["grants"]
        return cls(None if grants is None else Access.from_json(grants), reader["who"], interface)

    def record(self, given: Sequence[tuple[str, str]], *, found: bool) -> None:
        """Record in the audit log a question about a single request, and whether it was found."""
        log = audit_log()
        if log is None:
            return
        for name, value in given:
            label, _, text = value.partition("=")
            if name == "request":
                log.read(self.interface, self.who, value, found=found)
            elif name in _FILTERS and label in _OF_ONE:
                log.read(self.interface, self.who, text, found=found)


EVERYTHING: Final = Reader()


@contextmanager
def reading_as(reader: Reader) -> Iterator[None]:
    """Restrict databases opened in the `with` block to what the reader may see.

    Raises:
        StoreError: the database cannot be read.
    """
    access = reader.access
    if access is not None and access.limits_rows:
        with database.opened_to_read() as engine:
            access = access_with_objectives(engine, access, _objectives())
    with database.reading_as(access):
        yield


def _objectives() -> Sequence[Objective]:
    """The server's objectives, or none if their files cannot be read."""
    paths = [Path(each) for each in os.environ.get(ENVIRONMENT_KEY, "").split(os.pathsep) if each]
    try:
        return load(paths or [OBJECTIVES]).objectives
    except (AlertsError, OSError):
        return ()
