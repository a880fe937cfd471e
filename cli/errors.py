"""The errors of a command."""

import click


def reason(error: Exception) -> str:
    """The text of an error. If a file caused the error, the text is `PATH: REASON`."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class Unreachable(click.ClickException):
    """A server, file or database cannot be reached or opened. Exit status 2."""

    exit_code = 2
