"""Options of the commands that query the store."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from sqlalchemy import Engine

from analysis.database import open_to_read
from analysis.requests import known_requests, scraped_servers
from analysis.staleness import silence_s
from analysis.stored_data import stored_data
from cli.options import time_range
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, state_url, time_options
from cli.render import text
from telemetry import time_text
from telemetry.labels import REQUEST_LABELS, malformed_request_label
from telemetry.requests import Outcome
from telemetry.window import Window

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Selection:
    """An open database, and the selected window and labels."""

    engine: Engine
    window: Window
    equals: dict[str, str | None]


where_option = click.option(
    "--where",
    multiple=True,
    metavar="LABEL=VALUE",
    help=(
        "Select requests with this label value. May be repeated: all conditions must match. LABEL="
        " selects requests without this label."
    ),
)


def question_options(command: _Command) -> _Command:
    """Add `--format`, and the options whose values `open_selection` takes."""
    for option in (
        config_option,
        database_option,
        format_option("A table, or one JSON object per line."),
        where_option,
    ):
        command = option(command)
    return time_options(command)


def open_selection(
    last: str | None,
    start: str | None,
    end: str | None,
    where: Sequence[str],
    database: str | None,
    labels: Sequence[str] = REQUEST_LABELS,
) -> Selection:
    """Open the database and parse the options. `--where` may name the labels in `labels`.

    Raises:
        click.UsageError: a value is malformed.
        StoreError: the database does not exist, or cannot be read.
    """
    try:
        window = time_range.window(last, start, end, time.time_ns())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    equals = equals_of(where, labels)
    engine = open_to_read(database, state_url())
    click.get_current_context().call_on_close(engine.dispose)
    return Selection(engine, window, equals)


def equals_of(
    where: Sequence[str],
    labels: Sequence[str] = REQUEST_LABELS,
    option: str = "--where",
) -> dict[str, str | None]:
    """Parse the conditions LABEL=VALUE. The value None selects requests without the label.

    Raises:
        click.UsageError: a condition is malformed.
    """
    equals: dict[str, str | None] = {}
    for condition in where:
        label, is_, value = condition.partition("=")
        if not is_:
            raise click.UsageError(f"{option} {condition!r}: must be LABEL=VALUE")
        if label not in labels:
            raise click.UsageError(
                f"{option} {condition!r}: unknown label {label!r}; allowed: {', '.join(labels)}"
            )
        if label in equals:
            raise click.UsageError(f"{option} {condition!r}: {label} is given twice")
        if label == "outcome" and value and value not in list(Outcome):
            raise click.UsageError(
                f"{option} {condition!r}: unknown outcome; allowed: {', '.join(Outcome)}"
            )
        if value and (allowed := malformed_request_label(label, value)) is not None:
            raise click.UsageError(f"{option} {condition!r}: {allowed}")
        equals[label] = value or None
    return equals


def dimensions_of(by: str, labels: Sequence[str], grouped: str) -> list[str]:
    """Parse the labels LABEL,LABEL of `--by`. `grouped` names the things to group, for errors.

    Raises:
        click.UsageError: a label is unknown or repeated.
    """
    names = [name.strip() for name in by.split(",")] if by.strip() else []
    for name in names:
        if name not in labels:
            raise click.UsageError(
                f"--by {by!r}: {grouped} cannot be grouped by {name!r};"
                f" allowed: {', '.join(labels)}"
            )
        if names.count(name) > 1:
            raise click.UsageError(f"--by {by!r}: {name} is given twice")
    return names


def silence(engine: Engine, to_unix_ns: int) -> str | None:
    """A line about missing data, or None if data arrives or the range is in the past."""
    now = time.time_ns()
    newest = stored_data(engine).newest_unix_ns
    silent = silence_s(newest, to_unix_ns, now)
    if silent is None or newest is None:
        return None
    return (
        f"NO DATA for {time_text.length(int(silent) * 10**9)}: the newest data is from"
        f" {time_text.moment(newest)} UTC. `tailspan doctor` checks each connection."
    )


def nothing_found(selection: Selection) -> str:
    """Why there is no request, and what to try."""
    found = f"No requests received {text.span(selection.window)}"
    if selection.equals:
        labels = ", ".join(f"{key}={value or ''}" for key, value in selection.equals.items())
        found += f" with {labels}"
    newest = known_requests(selection.engine).newest_unix_ns
    scraped = scraped_servers(selection.engine, selection.window)
    if scraped and not selection.equals:
        return (
            f"{found}. {scraped} {'server is' if scraped == 1 else 'servers are'} known only from"
            " /metrics, which has no data about single requests: install the plugin, or start"
            " vLLM with --otlp-traces-endpoint."
        )
    if newest is None:
        return (
            f"{found}. The database has no requests yet: send a request to a connected server"
            " and run the command again."
        )
    if newest < selection.window.from_unix_ns or not selection.equals:
        return (
            f"{found}. The newest request was received {time_text.moment(newest)} UTC:"
            f" try --from {(newest - 900 * 10**9) // 10**9} --to {newest // 10**9 + 1}."
        )
    return f"{found}. Remove a --where, or use a longer --last."
