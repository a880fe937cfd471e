"""Write a file entirely or not at all."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click


@contextmanager
def whole_file(option: str, path: Path | None) -> Iterator[TextIO]:
    """Open a new file, which replaces the file at `path` when the `with` block ends.

    If an exception ends the block, the file stays unchanged. Devices and pipes are written
    directly. The path None is standard output. `option` is named in errors.

    Raises:
        click.UsageError: the file cannot be written.
    """
    if path is None:
        yield sys.stdout
        return
    target = path.resolve()
    in_place = target.exists() and not target.is_file()
    written = target if in_place else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with written.open("w", encoding="utf-8") as file:
            yield file
        if not in_place:
            written.replace(target)
    except OSError as error:
        raise click.UsageError(f"{option} {path}: {error.strerror}") from error
    finally:
        if not in_place:
            written.unlink(missing_ok=True)
