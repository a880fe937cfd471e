"""The option `--format`.

This module imports no module of `store`, so that commands without a database start fast.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

FORMATS: Final = ("text", "json")


def format_option(shape: str) -> Callable[[_Command], _Command]:
    """Return the option `--format`, which passes its value to the command as `form`.

    `shape` describes the output, as in "A table, or one JSON object per line."
    """
    return click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help=shape,
    )
