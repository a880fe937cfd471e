"""`--token-file`: the bearer tokens of the endpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cli.options.settings import setting


def token_file_option(meaning: str) -> Callable[..., Any]:
    """Return `--token-file` with this help text."""
    return setting(
        "--token-file",
        group="Access",
        value_variable="TAILSPAN_TOKENS",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help=meaning,
    )
