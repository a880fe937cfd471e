"""Create files that only their owner can read, and restrict the modes of existing files.

Files are created with their final mode. SQLite gives its -wal and -shm files the mode of the
database.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077


def create(path: Path) -> None:
    """Create an empty file that only its owner can read. An existing file is not changed."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    except FileExistsError:
        return


def restrict_modes(paths: Iterable[Path], report: Callable[[str], None]) -> None:
    """Remove other users' permissions on files and folders, and report each change."""
    for path in paths:
        try:
            mode = path.stat().st_mode & 0o777
            if mode & _OTHERS:
                path.chmod(mode & ~_OTHERS)
                report(f"{path} was open to other users (mode {mode:o}); it is private now.")
        except FileNotFoundError:
            continue
        except OSError as error:
            report(f"{path} is open to other users and cannot be made private: {error.strerror}.")
