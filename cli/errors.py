"""The error of a command that cannot reach or open a server, file or database."""

import click


class Unreachable(click.ClickException):
    """A server, file or database cannot be reached or opened. Exit status 2."""

    exit_code = 2
