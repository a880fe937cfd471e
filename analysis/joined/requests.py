"""List joined requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from analysis.joined.as_json import sort_value
from store.joined.read import MAX_ROWS, read_joined
from telemetry.joined_request import JoinedRequest
from telemetry.window import Window

TRUNCATED: Final = f"Only the newest {MAX_ROWS:,} rows of a range were joined."
TRUNCATED_WINDOW: Final = (
    f"The window has more than {MAX_ROWS:,} rows; only the newest were joined. Use a shorter"
    " window."
)


@dataclass(frozen=True, slots=True)
class JoinedQuestion:
    """Which joined requests to list.

    Attributes:
        equals: labels that at least one hop must have.
        sort: one of `as_json.SORTABLE`, or None for the order of their starts. A - before it means
            descending. Unknown values come last.
        max_rows: the maximum number of rows to join. The newest rows are joined.
    """

    window: Window
    equals: Mapping[str, str | None]
    sort: str | None = None
    max_rows: int = MAX_ROWS


@dataclass(frozen=True, slots=True)
class JoinedList:
    """The joined requests of a window. `truncated` means that the window has more rows than were
    joined."""

    requests: Sequence[JoinedRequest] = ()
    truncated: bool = False


def answer_joined(engine: Engine, question: JoinedQuestion) -> JoinedList:
    """List the joined requests of a window."""
    found = read_joined(engine, question.window, question.equals, question.max_rows)
    if question.sort is None:
        return JoinedList(found.requests, found.truncated)
    return JoinedList(_sorted(found.requests, question.sort), found.truncated)


def _sorted(requests: Sequence[JoinedRequest], sort: str) -> list[JoinedRequest]:
    key = sort.removeprefix("-")
    values = [(sort_value(each, key), each) for each in requests]
    known = [each for each in values if each[0] is not None]
    known.sort(key=lambda each: each[0], reverse=sort.startswith("-"))
    return [each for _, each in known] + [each for value, each in values if value is None]
