"""Options of the JSON API: `--api-questions`, `--api-timeout`."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from cli.options.durations import Duration
from cli.options.numbers import WholeRange
from cli.options.settings import setting, with_options
from server.api.limits import ApiLimits

_Command = TypeVar("_Command", bound=Callable[..., Any])

MAX_QUESTIONS: Final = 8
"""Maximum questions that are answered at the same time. Six more questions may wait. So questions
use at most 14 of the 16 connections of a client address. The other connections stay free for
/metrics."""

timeout_option = setting(
    "--api-timeout",
    group="API",
    type=Duration("1s", "10m"),
    metavar="DURATION",
    default="60s",
    show_default=True,
    help="Maximum time for a question to /api/v1, from 1s to 10m.",
)

_OPTIONS = (
    setting(
        "--api-questions",
        group="API",
        type=WholeRange(0, MAX_QUESTIONS),
        metavar="N",
        default=2,
        show_default=True,
        help="Maximum number of questions to /api/v1 at the same time, each in its own process. 0"
        " disables /api/v1.",
    ),
    timeout_option,
)


def api_options(command: _Command) -> _Command:
    """Add the options whose values `api_limits_of` takes."""
    return with_options(command, *_OPTIONS)


def api_limits_of(questions: int, timeout_ns: int) -> ApiLimits | None:
    """The limits of the API, or None if it is disabled."""
    return ApiLimits(questions, seconds=timeout_ns / 1e9) if questions else None
