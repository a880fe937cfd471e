"""The explorer's `--sign-in` and `--base-path`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.errors import reason
from cli.options.extras import check_extra
from cli.options.settings import setting, with_options

if TYPE_CHECKING:
    from analysis.sign_in_file import SignIn

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    setting(
        "--sign-in",
        group="Access",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="YAML file for sign-in to the explorer with OpenID Connect (ui/README.md)."
        " Default: no sign-in.",
    ),
    setting(
        "--base-path",
        group="Ports",
        default="",
        metavar="PATH",
        show_default="the path of the url in the --sign-in file, or none",
        help="Path under which a proxy serves the explorer.",
    ),
)


def sign_in_options(command: _Command) -> _Command:
    """Add the options whose values `sign_in_of` takes."""
    return with_options(command, *_OPTIONS)


def sign_in_of(file: Path | None, base_path: str) -> tuple[tuple[Path, "SignIn"] | None, str]:
    """The sign-in file with its content, and the base path without outer slashes.

    Raises:
        click.UsageError: the file is invalid, or the two options contradict each other.
        Unreachable: a library is missing.
    """
    from alerts.errors import AlertsError
    from analysis.sign_in_file import SIGN_IN_KEY, load_sign_in

    base_path = base_path.strip("/")
    path = file or Path(os.environ.get(SIGN_IN_KEY, ""))
    if path == Path():
        return None, base_path
    try:
        settings = load_sign_in(path, os.environ)
    except (AlertsError, OSError) as error:
        raise click.UsageError(f"--sign-in: {reason(error)}") from error
    check_extra("authlib", "sign-in", "--sign-in")
    if base_path and base_path != settings.base_path:
        raise click.UsageError(
            f"--base-path {base_path}: the path of url in {path} is"
            f" {settings.base_path or 'none'!r}; remove --base-path, or make both paths equal"
        )
    return (path, settings), settings.base_path
