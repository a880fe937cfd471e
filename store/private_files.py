"""Create files that only their owner can read, and restrict the modes of existing files.

Files are created with their final mode. SQLite gives its -wal and -shm files the mode of the
database.
"""

import os
import stat
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


def obstacle(file: Path) -> str | None:
    """Return a description of what blocks the path of a file or of one of its folders, or None if
    nothing blocks it.

    Returns: for instance "/srv/data is a file, not a folder".
    """
    for folder in reversed(file.parents):
        if (found := _kind(folder, follow=True)) not in (None, "a folder"):
            return f"{folder} is {found}, not a folder"
    if (found := _kind(file, follow=False)) not in (None, "a file"):
        return f"{file} is {found}, not a file"
    return None


def _kind(path: Path, *, follow: bool) -> str | None:
    """Return the kind of file at a path, or None if the path is missing or cannot be read."""
    try:
        mode = path.stat(follow_symlinks=follow).st_mode
    except OSError:
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
}
