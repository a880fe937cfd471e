"""`tailspan settings`."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from cli.options.settings import (
    FILE_READ,
    Setting,
    all_settings,
    file_option,
    without_credentials,
)
from cli.options.shared import format_option
from cli.render import text

HIDDEN: Final = "(hidden)"
SECRET_VARIABLES: Final = ("TAILSPAN_FORWARD_HEADERS",)


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """The key of a setting, its value as the user wrote it, and where it was found."""

    setting: str
    value: Any
    source: str


@click.command(
    epilog="""\b
Examples:
  tailspan settings
  tailspan settings --config /etc/tailspan/tailspan.toml
  tailspan settings --format json
"""
)
@file_option("file")
@format_option("A table, or one JSON object per line.")
def settings(file: Path | None, form: str) -> None:
    """Show the settings of `tailspan up`, and the source of each setting.

    The settings file and the environment are checked as `tailspan up` does. Passwords and tokens
    are not printed.
    """
    from cli.commands.up import up

    words = [] if file is None else ["--config", str(file)]
    parent = click.get_current_context().parent
    with up.make_context("up", words, parent=parent) as context:
        found = list(effective_settings(context))
        read = context.meta.get(FILE_READ)
    if form == "json":
        for each in found:
            click.echo(json.dumps(asdict(each), allow_nan=False))
        return
    click.echo(f"Settings file: {read or 'none'}\n")
    rows = [[each.setting, _text(each.value), each.source] for each in found]
    for line in text.table(["setting", "value", "from"], rows, left=3, keep=3):
        click.echo(line)


def effective_settings(context: click.Context) -> Iterator[EffectiveSetting]:
    """Yield each setting, and the variables with secrets, without their values."""
    for each in all_settings():
        value, source = each.consume_value(context, {})
        yield EffectiveSetting(each.key, _as_json(each, value), _source(context, each, source))
    secret = {each.value_variable for each in all_settings() if each.value_variable}
    for variable in sorted({*secret, *SECRET_VARIABLES}):
        if os.environ.get(variable):
            yield EffectiveSetting(variable, HIDDEN, variable)


def _source(context: click.Context, each: Setting, source: ParameterSource) -> str:
    if source is ParameterSource.DEFAULT_MAP:
        return str(context.meta[FILE_READ])
    return each.variable if source is ParameterSource.ENVIRONMENT else "default"


def _as_json(each: Setting, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_json(each, item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | Path):
        return without_credentials(str(value))
    return each.show_default if isinstance(each.show_default, str) else None  # not set


def _text(value: Any) -> str:
    if value in (None, [], ""):
        return text.UNKNOWN
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
