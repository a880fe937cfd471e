"""The process that answers the questions of the API: `python -m cli.questions.worker`.

It reads one JSON object per line until the input ends (server/api/README.md). It has no state.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Final

from analysis.access.audit_log import Interface
from cli.questions.answer import answered
from cli.questions.openapi import document
from cli.questions.reader import Reader
from cli.questions.refusal import QuestionRefused
from cli.questions.tools import listed, used
from server.api.problem import MEDIA_TYPE as PROBLEM
from server.api.problem import problem
from server.memory import limit_allocator_memory
from telemetry import child_process, pandas_import

NICE: Final = 10
"""The nice level of this process. The process that receives telemetry then gets CPU time first."""
JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"

_Body = tuple[str, str]
"""The media type and the text of an answer."""


def _question(message: Mapping[str, Any]) -> _Body:
    parameters = [(key, value) for key, value in message["parameters"]]
    found = answered(message["name"], parameters, Reader.of(message, Interface.API))
    if message.get("lines") and found.lines:
        return LINES, found.text
    return JSON, found.document()


def _openapi(_message: Mapping[str, Any]) -> _Body:
    return JSON, json.dumps(document())


def _tools(_message: Mapping[str, Any]) -> _Body:
    return JSON, json.dumps(listed())


def _tool(message: Mapping[str, Any]) -> _Body:
    return JSON, used(message["name"], message["arguments"], Reader.of(message, Interface.MCP))


_ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _Body]]] = {
    "question": _question,
    "openapi": _openapi,
    "tools": _tools,
    "tool": _tool,
}


def serve(messages: IO[bytes], answers: IO[bytes]) -> None:
    """Answer messages until the input ends."""
    for line in messages:
        head: dict[str, Any] = {"status": HTTPStatus.OK.value}
        try:
            message = json.loads(line)
            head["type"], text = _ANSWERS[message["ask"]](message)
        except QuestionRefused as refused:
            head |= {"status": refused.problem["status"], "type": PROBLEM}
            text = json.dumps(refused.problem)
        except Exception as error:  # a defect; the process must still answer the next question
            status = HTTPStatus.INTERNAL_SERVER_ERROR.value
            head |= {"status": status, "type": PROBLEM, "defect": _error_position(error)}
            text = json.dumps(problem(status, "the question failed; the log names the code line"))
        body = text.encode("utf-8", "backslashreplace")
        answers.write(json.dumps({**head, "bytes": len(body)}).encode() + b"\n")
        answers.write(body)
        answers.flush()


def _error_position(error: Exception) -> str:
    """An error's type and code line. The message is left out, because it may contain user data."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"


def main() -> None:
    """Answer the messages of the standard input."""
    pandas_import.prevent()
    limit_allocator_memory()
    child_process.lower_priority(NICE)
    # The output of libraries must not get into an answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
