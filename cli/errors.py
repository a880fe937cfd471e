"""The end of a verb that met nothing to work with."""

import click


class Unreachable(click.ClickException):
    """What was asked for cannot be reached, opened or had. Exit status 2."""

    exit_code = 2
