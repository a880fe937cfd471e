"""Derive the questions of the HTTP API and the MCP server from the options of the commands.

Options with files, and the settings of `tailspan up`, are not parameters, because the server sets
them.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import click

from cli.main import tailspan
from cli.options.settings import Setting


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a question. Its name is the name of an option without the dashes."""

    name: str
    meaning: str
    schema: Mapping[str, Any]
    allowed: str
    repeated: bool
    flag: bool


@dataclass(frozen=True, slots=True)
class QuestionCommand:
    """A command that answers a question."""

    name: str
    words: tuple[str, ...]
    """The command, such as ("slo", "status")."""
    command: click.Command
    lines: bool
    """Whether the command prints one JSON object per line."""
    parameters: Mapping[str, Parameter]

    @property
    def summary(self) -> str:
        """The first sentence of the command's help."""
        return self.command.get_short_help_str(limit=200)

    @property
    def meaning(self) -> str:
        """The command's help."""
        return inspect.cleandoc(self.command.help or "").replace("\b\n", "")


_COMMANDS: Final[Mapping[str, tuple[tuple[str, ...], bool]]] = {
    "stats": (("stats",), True),
    "explain": (("explain",), False),
    "requests": (("requests",), True),
    "cost": (("cost",), False),
    "caches": (("caches",), False),
    "slo": (("slo", "status"), True),
    "compare": (("compare",), False),
    "what-if": (("what-if",), False),
    "budget": (("budget",), False),
    "outside": (("outside",), False),
    "starts": (("starts",), False),
}
"""Maps each question to its command, and to whether the command prints one JSON object per line."""

MAX_LINES: Final = 5_000
"""Maximum objects in an answer. A request has about 1.9 kB as JSON."""
_LIMIT: Final = "limit"
_OPTION: Final = re.compile(r"--([a-z][a-z-]*)")

_OMITTED: Final = ("form", "block_tokens")


@cache
def questions() -> Mapping[str, QuestionCommand]:
    """Import the commands, and return the questions by name."""
    return {
        name: QuestionCommand(name, words, command, lines, _parameters(command))
        for name, (words, lines) in _COMMANDS.items()
        for command in [_command(words)]
    }


def _command(words: tuple[str, ...]) -> click.Command:
    found: click.Command = tailspan
    for word in words:
        assert isinstance(found, click.Group)
        next_ = found.get_command(click.Context(found), word)
        assert next_ is not None, words
        found = next_
    return found


def _parameters(command: click.Command) -> Mapping[str, Parameter]:
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option)
        and not isinstance(option, Setting)
        and not isinstance(option.type, click.Path)
        and option.name not in _OMITTED
    ]
    found = {each.name: each for each in map(_parameter, options)}
    return {
        name: replace(each, meaning=as_parameters(each.meaning, found))
        for name, each in found.items()
    }


def as_parameters(text: str, known: Mapping[str, Parameter]) -> str:
    """Remove the dashes of parameters in a text: `--last` becomes `last`."""
    return _OPTION.sub(lambda found: found[1] if found[1] in known else found[0], text)


def _parameter(option: click.Option) -> Parameter:
    flag = next(name for name in option.opts if name.startswith("--"))
    schema, allowed = _values(option)
    given = option.default
    if isinstance(given, str | int | float) and given != "" and not option.multiple:
        schema["default"] = given
    return Parameter(
        name=flag.removeprefix("--"),
        meaning=option.help or "",
        schema=schema,
        allowed=allowed,
        repeated=option.multiple,
        flag=option.is_flag,
    )


def _values(option: click.Option) -> tuple[dict[str, Any], str]:
    kind = option.type
    if option.is_flag:
        return {"type": "boolean"}, "true, false"
    if isinstance(kind, click.Choice):
        choices = [str(each) for each in kind.choices]
        return {"type": "string", "enum": choices}, ", ".join(choices)
    if isinstance(kind, click.types.IntParamType):
        if not isinstance(kind, click.IntRange) or kind.min is None or kind.max is None:
            return {"type": "integer"}, "a whole number"
        most = min(kind.max, MAX_LINES) if option.name == _LIMIT else kind.max
        schema = {"type": "integer", "minimum": kind.min, "maximum": most}
        return schema, f"a whole number from {kind.min:,} to {most:,}"
    if isinstance(kind, click.types.FloatParamType):
        return {"type": "number"}, "a number"
    return {"type": "string"}, option.metavar or "text"
