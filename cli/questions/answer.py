"""Run a question's command in this process."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import click
from click.exceptions import Exit

from cli.options.prediction_storage import READS_ONLY
from cli.questions.command_line import arguments
from cli.questions.declared import MAX_LINES, as_parameters, questions
from cli.questions.reader import EVERYTHING, Reader, reading_as
from cli.questions.refusal import QuestionRefused, refusal_of
from cli.questions.row_limit import check_rows, limited
from telemetry.store_errors import NotAllowed, StoreError

MAX_CHARACTERS: Final = 16 * 2**20
"""Maximum characters of an answer. An answer stays in memory while the client reads it."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The output of the command that answers a question."""

    text: str
    note: str
    """The text on standard error, such as the reason why no request was found."""
    lines: bool

    def document(self) -> str:
        """The answer as one JSON document. If the command prints one object per line, the document
        is an array."""
        if not self.lines:
            return self.text
        return f"[{','.join(self.text.splitlines())}]\n"


class _LimitedText(io.StringIO):
    """Raises an error if an answer would exceed the limits."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = 0

    def write(self, text: str) -> int:
        self._lines += text.count("\n")
        if self._lines > MAX_LINES:
            raise _TooMuchError(f"over {MAX_LINES:,} objects; allowed: at most {MAX_LINES:,}")
        if self.tell() + len(text) > MAX_CHARACTERS:
            raise _TooMuchError(
                f"over {MAX_CHARACTERS:,} characters; allowed: at most {MAX_CHARACTERS:,}"
            )
        return super().write(text)


class _TooMuchError(BaseException):
    """The answer exceeds a limit. It is a BaseException, so that no command catches it."""


def answered(
    name: str, given: Sequence[tuple[str, str]], reader: Reader = EVERYTHING
) -> CommandAnswer:
    """Answer a question of a reader.

    Raises:
        QuestionRefused: there is no answer. The error states the reason and what is allowed.
    """
    known = questions()
    if name not in known:
        raise QuestionRefused(
            f"there is no question {name[:80]!r}; allowed: {', '.join(known)}", HTTPStatus.NOT_FOUND
        )
    question = known[name]
    words = arguments(question, limited(name, given))
    printed, noted = _LimitedText(), _LimitedText()
    found = False
    try:
        with reading_as(reader), redirect_stdout(printed), redirect_stderr(noted):
            _run(name, question.command, words)
        found = bool(printed.tell())
    except _TooMuchError as error:
        raise QuestionRefused(
            f"the answer has {error}; ask about a shorter range, or for fewer rows or groups",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        ) from error
    except click.ClickException as error:
        raise refusal_of(error, question, given) from error
    except NotAllowed as error:
        raise QuestionRefused(str(error), HTTPStatus.FORBIDDEN) from error
    except StoreError as error:
        raise QuestionRefused(str(error), HTTPStatus.SERVICE_UNAVAILABLE) from error
    except MemoryError as error:
        raise QuestionRefused(
            "the answer needs too much memory; ask about a shorter range",
            HTTPStatus.UNPROCESSABLE_ENTITY,
        ) from error
    finally:
        reader.record(given, found=found)
    note = as_parameters(noted.getvalue().strip(), question.parameters)
    return CommandAnswer(printed.getvalue(), note, question.lines)


def _run(name: str, command: click.Command, words: list[str]) -> None:
    with command.make_context(name, words, obj=READS_ONLY) as context:
        check_rows(name, context.params)
        with suppress(Exit):  # this exit status means that the command has a finding
            command.invoke(context)
