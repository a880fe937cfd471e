"""What the verbs that ask the store have in common: the options, and the question they make."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from sqlalchemy import Engine

from analysis.staleness import silence_s
from cli.options import time_range
from cli.options.settings import config_option
from cli.options.shared import database_option, format_option, time_options
from cli.render import text
from store import queries
from store.database import open_database
from store.queries import Window
from store.replicas.scraped_replicas import scraped_replicas
from telemetry import time_text
from telemetry.requests import Outcome

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Question:
    """An open database and the part of it that was asked about."""

    engine: Engine
    window: Window
    equals: dict[str, str | None]


def question_options(command: _Command) -> _Command:
    """Add the options whose values `ask` takes, and `--format`."""
    where = click.option(
        "--where",
        multiple=True,
        metavar="LABEL=VALUE",
        help="Select requests with this label. May be repeated, and all must hold. With nothing"
        " after the = it selects those where the label is unknown.",
    )
    for option in (
        config_option,
        database_option,
        format_option("A table, or one JSON object per line."),
        where,
    ):
        command = option(command)
    return time_options(command)


def ask(
    last: str | None,
    start: str | None,
    end: str | None,
    where: Sequence[str],
    database: str | None,
) -> Question:
    """Open the database and read the options.

    Raises:
        click.UsageError: a value is malformed.
        StoreError: there is no such database, or it cannot be read.
    """
    try:
        window = time_range.window(last, start, end, time.time_ns())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    equals = _equals(where)
    engine = open_database(database, create=False)
    click.get_current_context().call_on_close(engine.dispose)
    return Question(engine, window, equals)


def _equals(where: Sequence[str]) -> dict[str, str | None]:
    equals: dict[str, str | None] = {}
    for condition in where:
        label, is_, value = condition.partition("=")
        if not is_:
            raise click.UsageError(f"--where {condition!r}: must be LABEL=VALUE")
        if label not in queries.REQUEST_LABELS:
            raise click.UsageError(
                f"--where {condition!r}: {label!r} is no label;"
                f" allowed: {', '.join(queries.REQUEST_LABELS)}"
            )
        if label in equals:
            raise click.UsageError(f"--where {condition!r}: {label} is given twice")
        if label == "outcome" and value and value not in list(Outcome):
            raise click.UsageError(
                f"--where {condition!r}: no such outcome; allowed: {', '.join(Outcome)}"
            )
        equals[label] = value or None
    return equals


def silence(engine: Engine, to_unix_ns: int) -> str | None:
    """A line where no data comes any more; None where it does, or a past range is asked about."""
    now = time.time_ns()
    newest = queries.newest_unix_ns(engine)
    silent = silence_s(newest, to_unix_ns, now)
    if silent is None or newest is None:
        return None
    return (
        f"NO DATA for {time_text.length(int(silent) * 10**9)}: the newest is from"
        f" {time_text.moment(newest)} UTC. `tailspan doctor` looks at each connection."
    )


def nothing_found(question: Question) -> str:
    """Why there is nothing to show, and what to do about it."""
    found = f"No requests received {text.span(question.window)}"
    if question.equals:
        labels = ", ".join(f"{key}={value or ''}" for key, value in question.equals.items())
        found += f" with {labels}"
    newest = queries.newest_request_unix_ns(question.engine)
    scraped = scraped_replicas(question.engine, question.window)
    if scraped and not question.equals:
        return (
            f"{found}. {scraped} {'server is' if scraped == 1 else 'servers are'} known by /metrics"
            " alone, which tells of engines and not of requests: instrument them, or start vLLM"
            " with --otlp-traces-endpoint."
        )
    if newest is None:
        return (
            f"{found}. The database holds no request yet: send one to a server that reports"
            " here, and look again."
        )
    if newest < question.window.from_unix_ns or not question.equals:
        return (
            f"{found}. The newest was received {time_text.moment(newest)} UTC:"
            f" try --from {(newest - 900 * 10**9) // 10**9} --to {newest // 10**9 + 1}."
        )
    return f"{found}. Leave out a --where, or ask for a longer --last."
