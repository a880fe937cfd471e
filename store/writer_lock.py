"""Lock a database file, so that only one process writes it.

If two processes wrote, both would count the same requests and build the same rollups. The lock is
flock(2) on a file next to the database. The kernel releases the lock when the process ends. The
lock does not protect against a process that opens the database through a hard link, because this
process uses a different lock file. Readers take no lock.
"""

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from store.database import (
    STATE_DATABASE,
    TELEMETRY_DATABASE,
    DatabasePurpose,
    check_upgradable,
    database_file,
)
from store.private_files import FILE_MODE, FOLDER_MODE, obstacle, restrict_modes
from telemetry.database_urls import DEFAULT_URL
from telemetry.store_errors import StoreError

_SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of every SQLite database. Source: sqlite.org, Database File Format, 1.3."""
_LONGEST: Final = 4_096
"""Maximum number of bytes to read from the lock file."""


@contextmanager
def sole_writer(
    url: str, report: Callable[[str], None], purpose: DatabasePurpose = TELEMETRY_DATABASE
) -> Iterator[None]:
    """Lock a database for writing until the end of the `with` block.

    This also removes the permissions of other users on the database's files. Files that Tailspan
    cannot use are not changed.

    Args:
        report: called if other users could read a file, or if the database cannot be locked.

    Raises:
        StoreError: another process has the lock (the message contains its id), or the folder or the
            database cannot be used.
    """
    file = database_file(url, purpose)
    if file is None:
        yield
        return
    real = Path(os.path.realpath(file))
    _check_format(real, file, purpose)
    check_upgradable(url, purpose)
    try:
        real.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.open(
            lock_file(real), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE
        )
    except OSError as error:
        blocked = obstacle(lock_file(real))
        advice = (
            f"{error.strerror}; set a folder that this user can write to"
            if blocked is None
            else f"{blocked}; move it, or set another file with {purpose.options}"
        )
        raise StoreError(f"cannot use the folder of the database {file}: {advice}") from error
    try:
        _lock(lock, file, report, purpose)
        # Any other folder may contain files of other programs.
        ours = [file.parent] if file == database_file(DEFAULT_URL) else []
        database_files = [
            real.with_name(real.name + end) for end in ("", "-wal", "-shm", "-journal")
        ]
        restrict_modes([*ours, *database_files, lock_file(real)], report)
        yield
    finally:
        os.close(lock)


def check_two_files(url: str, state_url: str) -> None:
    """Check that a database and its separate state database are not the same file."""
    file, state = database_file(url), database_file(state_url, STATE_DATABASE)
    if file is not None and state is not None and file.resolve() == state.resolve():
        raise StoreError(
            f"{file} is both the database and the state database; leave --state-url out to keep the"
            " state in the database, or set another file"
        )


def _check_format(real: Path, file: Path, purpose: DatabasePurpose) -> None:
    try:
        with real.open("rb") as opened:
            start = opened.read(len(_SQLITE))
    except IsADirectoryError as error:
        raise StoreError(f"{file} is a folder; set a file with {purpose.options}") from error
    except OSError:
        return  # a missing file
    if start not in (b"", _SQLITE):
        raise StoreError(
            f"{file} is not a SQLite database; set another file with {purpose.options}"
        )


def lock_file(database: Path) -> Path:
    """The file that a writing process locks."""
    return database.with_name(database.name + ".lock")


def _lock(lock: int, file: Path, report: Callable[[str], None], purpose: DatabasePurpose) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(
            f"another process writes the database {file}: {_holder(lock)}. Stop that process, or"
            f" set another database with {purpose.options}"
        ) from error
    except OSError as error:
        # Some network file systems have no locks.
        report(
            f"The database {file} cannot be locked ({error.strerror}): make sure that no other"
            " Tailspan process writes to it."
        )
        return
    about = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        # Store only the subcommand, because options may contain secrets.
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]),
        "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(about).encode(), 0)


def _holder(lock: int) -> str:
    try:
        about = json.loads(os.pread(lock, _LONGEST, 0))
        words = [f"process {int(about['pid'])}"]
        words += [f"{name} {about[key]}" for name, key in _WORDS if isinstance(about[key], str)]
    except (ValueError, KeyError, TypeError):
        return "its process id is not known yet"
    shown = ", ".join(words)
    return "".join(each if each.isprintable() else "\ufffd" for each in shown)


_WORDS: Final = (("command", "command"), ("on", "host"), ("since", "since"))
