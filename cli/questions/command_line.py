"""Converts a question's parameters to arguments of the command. So the API accepts the same values
as the command."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from cli.questions.declared import Parameter, QuestionCommand
from cli.questions.refusal import QuestionRefused

MAX_PARAMETERS: Final = 64
LONGEST_VALUE: Final = 1_000
"""Maximum characters of a value. A label has at most 256 (docs/security.md)."""
_FLAGS: Final = {"true": True, "false": False}


def arguments(question: QuestionCommand, given: Sequence[tuple[str, str]]) -> list[str]:
    """The arguments of the command, with `--format json`.

    Raises:
        QuestionRefused: a parameter is unknown or invalid, or is repeated although it must not be.
    """
    if len(given) > MAX_PARAMETERS:
        raise QuestionRefused(f"{len(given)} parameters; allowed: at most {MAX_PARAMETERS}")
    words = ["--format=json"]
    for (name, value), times in zip(given, _times(given), strict=True):
        parameter = question.parameters.get(name)
        if parameter is None:
            known = ", ".join(question.parameters)
            raise QuestionRefused(
                f"{question.name} has no parameter {name[:80]!r}; allowed: {known}",
                parameter=name[:80],
                value=value[:80],
                allowed=known,
            )
        if times > 1 and not parameter.repeated:
            raise QuestionRefused(
                f"{name} is given {times} times; allowed: once", parameter=name, allowed="once"
            )
        words += _words(parameter, value)
    return words


def _times(given: Sequence[tuple[str, str]]) -> list[int]:
    counts = Counter(name for name, _ in given)
    return [counts[name] for name, _ in given]


def _words(parameter: Parameter, value: str) -> list[str]:
    name = parameter.name
    if len(value) > LONGEST_VALUE:
        raise QuestionRefused(
            f"{name} has {len(value):,} characters; allowed: at most {LONGEST_VALUE:,}",
            parameter=name,
            value=f"{value[:80]}…",
            allowed=f"at most {LONGEST_VALUE:,} characters",
        )
    if any(character < " " or character == "\x7f" for character in value):
        raise QuestionRefused(
            f"{name} {value[:80]!r} has a control character; allowed: {parameter.allowed}",
            parameter=name,
            value=value[:80],
            allowed=parameter.allowed,
        )
    if not parameter.flag:
        return [f"--{name}={value}"]
    if value not in _FLAGS:
        raise QuestionRefused(
            f"{name} {value[:80]!r}; allowed: {parameter.allowed}",
            parameter=name,
            value=value[:80],
            allowed=parameter.allowed,
        )
    return [f"--{name}"] if _FLAGS[value] else []
