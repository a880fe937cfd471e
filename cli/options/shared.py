"""Options of several commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.options.formats import FORMATS as FORMATS
from cli.options.formats import format_option as format_option
from cli.options.numbers import WholeRange
from cli.options.settings import setting
from cli.options.time_range import DEFAULT_LAST
from telemetry.database_urls import DEFAULT_URL, ENVIRONMENT_KEY, STATE_ENVIRONMENT_KEY

_Command = TypeVar("_Command", bound=Callable[..., Any])

_STATE_URL = "tailspan.state_url"


def _keep_state_url(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    context.meta[_STATE_URL] = value


def state_url() -> str | None:
    """The value of `--state-url`, if it is set."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_STATE_URL)


_state_url_option = setting(
    "--state-url",
    group="Storage",
    variable=STATE_ENVIRONMENT_KEY,
    metavar="URL",
    show_default="in the database",
    expose_value=False,
    callback=_keep_state_url,
    help="A separate database for incidents, notifications and leases: SQLite or PostgreSQL.",
)
_telemetry_option = setting(
    "--database",
    group="Storage",
    variable=ENVIRONMENT_KEY,
    metavar="URL",
    show_default=DEFAULT_URL,
    help="The database, as a SQLAlchemy URL: SQLite, PostgreSQL or ClickHouse.",
)


def database_option(command: _Command) -> _Command:
    """Add `--database` and `--state-url`. `state_url` returns the value of `--state-url`."""
    return _telemetry_option(_state_url_option(command))


objectives_option = setting(
    "--objectives",
    group="Objectives and prices",
    variable="TAILSPAN_OBJECTIVES",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    show_default="the built-in objectives",
    help="OpenSLO file or folder of objectives. May be repeated.",
)

prices_option = setting(
    "--prices",
    group="Objectives and prices",
    variable="TAILSPAN_PRICES",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    show_default="list prices",
    help="Prices of your GPUs, as YAML (see tailspan cost --help).",
)


block_size_option = click.option(
    "--block-size",
    "block_tokens",
    type=WholeRange(1, 2**20),
    default=512,
    show_default=True,
    metavar="TOKENS",
    help="Number of prompt tokens for which hash_ids in a trace has one number.",
)


def time_options(command: _Command) -> _Command:
    """Add `--last`, `--from` (parameter `start`) and `--to` (parameter `end`)."""
    for option in (
        click.option(
            "--to",
            "end",
            metavar="TIME",
            help="End of the range, in the same format as --from.  [default: now]",
        ),
        click.option(
            "--from",
            "start",
            metavar="TIME",
            help="Start of the range: unix seconds, or ISO 8601 (UTC if it has no zone).",
        ),
        click.option(
            "--last",
            metavar="DURATION",
            help="Length of the range that ends now or at --to: 90s, 15m, 2h, 7d."
            f"  [default: {DEFAULT_LAST}]",
        ),
    ):
        command = option(command)
    return command
