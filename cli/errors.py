"""The end of a verb that met nothing to work with."""

import click


class Unreachable(click.ClickException):
    """The requested thing cannot be reached, opened or obtained. Exit status 2."""

    exit_code = 2
