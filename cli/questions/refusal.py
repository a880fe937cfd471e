"""The error of a question that cannot be answered."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import click

from cli.errors import Unreachable
from cli.questions.declared import QuestionCommand, as_parameters
from server.api.problem import problem

_NAMED: Final = re.compile(r"(?:Invalid value for ')?--([a-z][a-z-]*)")
"""Matches the option at the start of an error's message."""
_OPTION: Final = re.compile(r"--([a-z][a-z-]*)")
_NO_PARAMETER: Final = re.compile(r", --[a-z-]+")
"""Matches a comma and an option in a list. An option that is not a parameter is removed."""
_ALLOWED: Final = re.compile(r"(?:allowed:|must be) (.*)", re.DOTALL)
_NOT_OPTIONS: Final = ("database", "state-url", "objectives", "prices")
"""Settings of the server, which the reader cannot correct."""


class QuestionRefused(Exception):  # noqa: N818
    """A question cannot be answered. `detail` states what failed and what is allowed."""

    def __init__(
        self,
        detail: str,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        *,
        parameter: str | None = None,
        value: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = problem(status, detail, parameter=parameter, value=value, allowed=allowed)
        """RFC 9457."""


def refusal_of(
    error: click.ClickException, question: QuestionCommand, given: Sequence[tuple[str, str]]
) -> QuestionRefused:
    """Convert an error of a command."""
    text = error.format_message()
    if isinstance(error, Unreachable):
        return QuestionRefused(text, HTTPStatus.SERVICE_UNAVAILABLE)
    name = _wrong_parameter(text, given)
    if not isinstance(error, click.UsageError) or name in _NOT_OPTIONS:
        return QuestionRefused(text, HTTPStatus.INTERNAL_SERVER_ERROR)
    detail = _NO_PARAMETER.sub("", as_parameters(text, question.parameters))
    parameter = question.parameters.get(name or "")
    if parameter is None:
        return QuestionRefused(detail)
    values = [value for key, value in given if key == name]
    # If an option has several values, the message contains the malformed value.
    wrong = next((each for each in values if repr(each) in text or each in text), None)
    found = _ALLOWED.search(detail)
    return QuestionRefused(
        detail,
        parameter=parameter.name,
        value=wrong if wrong is not None else next(iter(values), None),
        allowed=parameter.allowed if found is None else found[1],
    )


def _wrong_parameter(text: str, given: Sequence[tuple[str, str]]) -> str | None:
    if (named := _NAMED.match(text)) is not None:
        return named[1]
    # An error of what-if contains the value, or begins with the parameter or the engine argument.
    first = text.split(maxsplit=1)[0].rstrip(":;") if text else ""
    for name, value in given:
        if first == name or repr(value) in text or value.startswith(f"{first}="):
            return name
    mentioned = (each for each in _OPTION.findall(text) if each in dict(given))
    return next(mentioned, None)
