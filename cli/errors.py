"""The error of a command that cannot reach or open its target."""

import click


class Unreachable(click.ClickException):
    """The requested thing cannot be reached, opened or obtained. Exit status 2."""

    exit_code = 2
