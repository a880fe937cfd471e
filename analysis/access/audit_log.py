"""Write the audit log: a line of JSON for each sign-in and for each read of a request.

Several processes can write to the same log.
"""

import fcntl
import json
import logging
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from analysis.access.roles_file import roles_in_force
from store.private_files import FILE_MODE

MAX_BYTES: Final = 16 * 2**20
"""Maximum size of the log in bytes. A full log is renamed to `FILE.1` and replaces an earlier
`FILE.1`. A line has at most 1,500 bytes. So at least the newest 10,000 lines are kept."""
LONGEST: Final = 256
"""Maximum number of characters of a text in the log."""

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_log: Final = logging.getLogger(__name__)


class Interface(StrEnum):
    """How a reader reached the data."""

    PAGE = "page"
    API = "api"
    MCP = "mcp"


class AuditLog:
    """The log of sign-ins, and of the requests that readers opened. The folder of `path` must
    exist."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._failed = False

    def sign_in(self, who: str, result: str) -> None:
        """Record a sign-in. `result` is `accepted`, or the reason for which the sign-in was
        refused."""
        self._append({"event": "sign_in", "who": who, "result": result})

    def read(self, interface: Interface, who: str, request: str, *, found: bool) -> None:
        """Record that a reader opened, or tried to open, a single request. `who` is the person, or
        the token's number and role."""
        event = {"event": "read_request", "interface": interface, "who": who, "request": request}
        self._append({**event, "found": found})

    def _append(self, event: dict[str, Any]) -> None:
        texts = {
            key: each[:LONGEST] if isinstance(each, str) else each for key, each in event.items()
        }
        # With ASCII output, control characters, line ends and bidirectional marks are escaped.
        line = json.dumps({"time": round(time.time(), 3), **texts}, ensure_ascii=True)
        try:
            self._write(line.encode() + b"\n")
            self._failed = False
        except OSError as error:
            if not self._failed:
                _log.error("the audit log cannot be written: %s", error.strerror)
            self._failed = True

    def _write(self, line: bytes) -> None:
        while True:
            file = os.open(self._path, _FLAGS, FILE_MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                found = os.fstat(file)
                try:
                    renamed = self._path.stat().st_ino != found.st_ino
                except FileNotFoundError:
                    renamed = True
                if renamed:
                    continue  # another process renamed the file: open the new one
                if found.st_mode & 0o077:
                    os.fchmod(file, FILE_MODE)
                if found.st_size + len(line) > self._max_bytes and found.st_size:
                    self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                    continue
                os.write(file, line)
                return
            finally:
                os.close(file)


def check_writable(path: Path) -> None:
    """Create the audit log if it is missing, and check that it can be written.

    Raises:
        OSError: the file cannot be created or written.
    """
    os.close(os.open(path, _FLAGS, FILE_MODE))


def audit_log() -> AuditLog | None:
    """Return the audit log of this process, or None if it writes no audit log."""
    roles = roles_in_force()
    return None if roles is None or roles.audit is None else AuditLog(roles.audit)
