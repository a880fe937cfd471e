"""Reading messages, which is the most of the work: in this process, or in one beside it.

Python runs on one core. Spans, of which there are the most, can be read on another, by a
process that is given bodies and hands back rows. It holds nothing: it ends when its input does,
which is when we end, however that comes about; and if it ends first, another takes its place.

A message on which reading fails is refused for good, so that its sender does not repeat it for
ever: at once where an error was raised, and after a second attempt where the process ended.
"""

import fcntl
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final, Protocol

import numpy as np

from collector.errors import BusyError, IntakeError, UnreadableError
from collector.normalise.batch import Batch
from collector.otlp_json import from_json
from collector.signals import TRACES, Signal
from telemetry.request_rows import MEASURES, RequestRows
from telemetry.tasks import Task

_QUESTION: Final = Struct("<IQ?")
"""The body's length, the present in unix ns, whether it is JSON; the body follows."""
_PIPE_BYTES: Final = 2**20
"""A message is some hundred kB, and a pipe of 64 would take turns over each."""
_ANSWER: Final = Struct("<I")
"""Its length; a pickle follows."""
MOST_S: Final = 60
"""What takes longer ends the process: the largest message (`Limits.max_body_bytes`) takes about
three seconds on a busy core."""

_log = logging.getLogger(__name__)


class Reading(Protocol):
    """From a message to what it held. Called from one thread."""

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> Batch:
        """Read a message; raises IntakeError where it cannot be read."""

    def close(self) -> None:
        """Nothing more is read."""


class ReadingHere:
    """In the calling thread."""

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> Batch:
        """Read a message."""
        return signal.read(from_json(signal.request, body) if json else body, now_unix_ns)

    def close(self) -> None:
        """Nothing to do."""


class ReadingApart(ReadingHere):
    """Spans in a process of their own, the rest here. The process is started when needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.task = Task("span reader")

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> Batch:
        """Read a message."""
        if signal is not TRACES:
            return super().read(signal, body, json, now_unix_ns)
        answer = self._answer(body, json, now_unix_ns)
        if isinstance(answer, UnreadableError):
            self.task.failed(answer)
            _log.error("a message of spans could not be read: %s", answer)
            raise UnreadableError("reading this message failed; it is not taken")
        self.task.succeeded(time.time())
        if isinstance(answer, IntakeError):
            raise answer
        rows, measures, skipped, refused, truncated_texts = answer
        return Batch(
            requests=RequestRows(rows, np.frombuffer(measures).reshape(len(MEASURES), -1)),
            accepted=len(rows),
            skipped=Counter(skipped),
            refused=Counter(refused),
            truncated_texts=truncated_texts,
        )

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what it did not read any more
                        stream.close()

    def _answer(self, body: bytes, json: bool, now_unix_ns: int) -> Any:
        for attempt in (1, 2):
            try:
                process = self._process = self._process or _started()
            except OSError as error:  # no memory, too many processes: both may pass
                self.task.failed(error)
                raise BusyError(
                    f"the process that reads spans cannot be started: {error.strerror}"
                ) from error
            try:
                return self._ask(process, body, json, now_unix_ns)
            # A pickle that is cut or not one: the process wrote it as it ended.
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self.close()
                self.task.failed("ProcessEnded")
                _log.warning(
                    "the process that reads spans ended with status %s (attempt %d of 2)",
                    *(process.returncode, attempt),
                )
                ended = error
        raise UnreadableError(
            "the process that reads spans ended twice on this message; it is not taken"
        ) from ended

    def _ask(
        self, process: subprocess.Popen[bytes], body: bytes, json: bool, now_unix_ns: int
    ) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_QUESTION.pack(len(body), now_unix_ns, json))
        process.stdin.write(body)
        process.stdin.flush()
        (length,) = _ANSWER.unpack(_whole(process.stdout, _ANSWER.size))
        return pickle.loads(_whole(process.stdout, length))


def _started() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "collector.reading"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Not from the working directory: it may hold a `collector` of its own.
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        start_new_session=True,  # Ctrl-C is for us to act on
    )
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(OSError, AttributeError):  # not allowed, or not Linux: in more turns then
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


def _whole(stream: IO[bytes], length: int) -> bytes:
    found = stream.read(length)
    if len(found) < length:
        raise EOFError
    return found


def serve(
    questions: IO[bytes], answers: IO[bytes], limit: Callable[[int], object] = lambda _: None
) -> None:
    """Answer until there are no more questions.

    Args:
        questions: what is asked.
        answers: where the answers go.
        limit: given the seconds after which the kernel ends this process; 0 for never.
    """
    here = ReadingHere()
    while len(head := questions.read(_QUESTION.size)) == _QUESTION.size:
        length, now_unix_ns, json = _QUESTION.unpack(head)
        answer: Any
        limit(MOST_S)
        body = _whole(questions, length)
        try:
            batch = here.read(TRACES, body, json, now_unix_ns)
        except IntakeError as error:
            answer = error
        except Exception as error:  # a defect: this message is refused, the next is read
            answer = UnreadableError(_where(error))
        else:
            rows, measures = batch.requests.rows, batch.requests.measures().tobytes()
            left = dict(batch.skipped), dict(batch.refused), batch.truncated_texts
            answer = (rows, measures, *left)
        told = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        answers.write(_ANSWER.pack(len(told)))
        answers.write(told)
        answers.flush()
        limit(0)


def _where(error: Exception) -> str:
    """An error without its message, which may hold what a span held."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, signal.alarm)
