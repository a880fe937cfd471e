"""The error of a question that cannot be answered, and its meaning in HTTP."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import click

from cli.errors import Unreachable
from cli.questions.declared import Question, as_parameters
from server.api.problem import problem

_NAMED: Final = re.compile(r"(?:Invalid value for ')?--([a-z][a-z-]*)")
"""Matches the option at the start of an error message. The error is about this option."""
_OPTION: Final = re.compile(r"--([a-z][a-z-]*)")
_NO_PARAMETER: Final = re.compile(r", --[a-z-]+")
"""Matches a comma and an option in a list of options. `as_parameters` has removed the dashes of all
parameters, so the matched option is not a parameter, and is removed from the message."""
_ALLOWED: Final = re.compile(r"(?:allowed:|must be) (.*)", re.DOTALL)
_NOT_OPTIONS: Final = ("database", "state-url", "objectives", "prices")
"""Settings of the server. The reader cannot correct an error in one of them."""


class Refused(Exception):  # noqa: N818 -- it names the condition
    """The question cannot be answered.

    Args:
        detail: what failed, and what is allowed.
        status: the HTTP status.
        parameter: the name of the parameter with the error, or None if no parameter has an error.
        value: the value of this parameter.
        allowed: the allowed values of the parameter.
    """

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
        """The problem document."""


def refusal_of(
    error: click.ClickException, question: Question, given: Sequence[tuple[str, str]]
) -> Refused:
    """Return the refusal for an error of a command.

    Args:
        error: the command's error.
        question: the question.
        given: names and values of the parameters.
    """
    text = error.format_message()
    if isinstance(error, Unreachable):
        return Refused(text, HTTPStatus.SERVICE_UNAVAILABLE)
    name = _wrong_parameter(text, given)
    if not isinstance(error, click.UsageError) or name in _NOT_OPTIONS:
        return Refused(text, HTTPStatus.INTERNAL_SERVER_ERROR)
    detail = _NO_PARAMETER.sub("", as_parameters(text, question.parameters))
    parameter = question.parameters.get(name or "")
    if parameter is None:
        return Refused(detail)
    values = [value for key, value in given if key == name]
    # A repeated parameter has several values. The error message contains the malformed value.
    wrong = next((each for each in values if repr(each) in text or each in text), None)
    found = _ALLOWED.search(detail)
    return Refused(
        detail,
        parameter=parameter.name,
        value=wrong if wrong is not None else next(iter(values), None),
        allowed=parameter.allowed if found is None else found[1],
    )


def _wrong_parameter(text: str, given: Sequence[tuple[str, str]]) -> str | None:
    """Return the name of the parameter that an error message is about, or None without one."""
    if (named := _NAMED.match(text)) is not None:
        return named[1]
    # An error about a what-if change contains the parameter's value, or begins with the name of the
    # parameter or of the changed argument.
    first = text.split(maxsplit=1)[0].rstrip(":;") if text else ""
    for name, value in given:
        if first == name or repr(value) in text or value.startswith(f"{first}="):
            return name
    mentioned = (each for each in _OPTION.findall(text) if each in dict(given))
    return next(mentioned, None)
