"""The option `--format`. This module does not import `store`, so that commands that do not need
`store` start fast."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

FORMATS: Final = ("text", "json")


def format_option(shape: str) -> Callable[[_Command], _Command]:
    """Return `--format`, passed to the command as `form`. `shape` describes the output."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="text",
        show_default=True,
        help=shape,
    )
