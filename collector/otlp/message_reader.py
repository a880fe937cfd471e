"""Reading messages, which is the most of the work: in this process, or in one beside it.

Python runs on one core. Messages can be read on another, by a process that is given bodies and
hands back rows. It holds nothing: it ends when its input does, which is when we end, however that
comes about; and if it ends first, another takes its place. There a message may take 0.75 s of
the processor and no more: a small one can be made to take as long as one likes, and the messages
of others wait behind it.

A message on which reading fails is refused for good, so that its sender does not repeat it for
ever: at once where an error was raised, and after a second attempt where the process ended.
"""

import fcntl
import logging
import pickle
import signal as signals
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final, Protocol

import numpy as np

from collector.errors import BusyError, IntakeError, TooLargeError, UnreadableError
from collector.normalise.batch import Batch
from collector.otlp.json_mapping import from_json
from collector.signals import SIGNALS, TRACES, Signal
from telemetry import child_process
from telemetry.request_rows import MEASURES, RequestRows
from telemetry.tasks import Task

MAX_CPU_S: Final = 0.75
"""Of the processor, for one message. 16 MiB of our spans take 0.35 s; as much JSON as there may be
takes 0.65 s. It is time of the processor: a busy machine refuses no more than an idle one."""

_QUESTION: Final = Struct("<IQ?B")
"""The body's length, the present in unix ns, whether it is JSON, the signal's place in `SIGNALS`;
the body follows."""
_PIPE_BYTES: Final = 2**20
"""A message is some hundred kB, and a pipe of 64 would take turns over each."""
_ANSWER: Final = Struct("<I")
"""Its length; a pickle follows."""
MOST_S: Final = 60
"""What takes longer ends the process, also where it waits for something: the largest message
(`Limits.max_body_bytes`) takes about three seconds on a busy core."""

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
    """Reads messages in a separate process, which is started when needed.

    Args:
        max_cpu_s: of the processor, for one message.
    """

    def __init__(self, max_cpu_s: float = MAX_CPU_S) -> None:
        self._max_cpu_s = max_cpu_s
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.task = Task("message reader")

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> Batch:
        """Read a message."""
        answer = self._answer(signal, body, json, now_unix_ns)
        if isinstance(answer, UnreadableError):
            self.task.failed(answer)
            _log.error("a message of %s could not be read: %s", signal.name, answer)
            raise UnreadableError("reading this message failed; it is not taken")
        self.task.succeeded(time.time())
        if isinstance(answer, IntakeError):
            raise answer
        if isinstance(answer, Batch):
            return answer
        rows, measures, skipped, refused, truncated_texts = answer
        return Batch(
            requests=RequestRows(rows, np.frombuffer(measures).reshape(len(MEASURES), -1)),
            accepted=len(rows),
            skipped=Counter(skipped),
            refused=Counter(refused),
            truncated_texts=truncated_texts,
        )

    def close(self) -> None:
        """End the process, also amid a message: from any thread."""
        self._closed = True
        self._end()

    def _stopped(self) -> bool:
        """Whether another thread has closed this meanwhile."""
        return self._closed

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            child_process.end(process)

    def _answer(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> Any:
        for attempt in (1, 2):
            if self._stopped():
                break
            try:
                process = self._process = self._process or _started(self._max_cpu_s)
            except OSError as error:  # no memory, too many processes: both may pass
                self.task.failed(error)
                raise BusyError(
                    f"the process that reads messages cannot be started: {error.strerror}"
                ) from error
            try:
                return self._ask(process, signal, body, json, now_unix_ns)
            # A pickle that is cut or not one: the process wrote it as it ended.
            # ValueError: closed while we waited.
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                self._end()
                if self._stopped():
                    break
                self.task.failed("ProcessEnded")
                _log.warning(
                    "the process that reads messages ended with status %s (attempt %d of 2)",
                    *(process.returncode, attempt),
                )
                if attempt == 2:
                    raise UnreadableError(
                        "the process that reads messages ended twice on this message; it is not"
                        " taken"
                    ) from error
        raise BusyError("the collector stops; send again")

    def _ask(
        self,
        process: subprocess.Popen[bytes],
        signal: Signal,
        body: bytes,
        json: bool,
        now_unix_ns: int,
    ) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_QUESTION.pack(len(body), now_unix_ns, json, SIGNALS.index(signal)))
        process.stdin.write(body)
        process.stdin.flush()
        (length,) = _ANSWER.unpack(_whole(process.stdout, _ANSWER.size))
        return pickle.loads(_whole(process.stdout, length))


def _started(max_cpu_s: float) -> subprocess.Popen[bytes]:
    process = child_process.start("collector.otlp.message_reader", str(max_cpu_s), answers=True)
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
    questions: IO[bytes],
    answers: IO[bytes],
    max_cpu_s: float | None = None,
    limit: Callable[[int], object] = lambda _: None,
) -> None:
    """Answer until there are no more questions.

    Args:
        questions: as `_QUESTION`.
        answers: as `_ANSWER`.
        max_cpu_s: of the processor, for one message; None for any time.
        limit: given the seconds after which the kernel ends this process; 0 for never.
    """
    here = ReadingHere()
    while len(head := questions.read(_QUESTION.size)) == _QUESTION.size:
        length, now_unix_ns, json, number = _QUESTION.unpack(head)
        limit(MOST_S)
        body = _whole(questions, length)
        signal = SIGNALS[number]
        answer: Any
        try:
            with _at_most(max_cpu_s):
                batch = here.read(signal, body, json, now_unix_ns)
        except IntakeError as error:
            answer = error
        except _TakesTooLongError:
            answer = TooLargeError(
                f"reading the message took more than {max_cpu_s:g} s; send smaller batches"
            )
        except Exception as error:  # a defect: this message is refused, the next is read
            answer = UnreadableError(_where(error))
        else:
            answer = _rows(batch) if signal is TRACES else batch
        told = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        answers.write(_ANSWER.pack(len(told)))
        answers.write(told)
        answers.flush()
        limit(0)


def _where(error: Exception) -> str:
    """An error without its message, which may hold what a span held."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"


def _rows(batch: Batch) -> Any:
    """What a message of spans held, in what is quick to pickle."""
    rows, measures = batch.requests.rows, batch.requests.measures().tobytes()
    return rows, measures, dict(batch.skipped), dict(batch.refused), batch.truncated_texts


class _TakesTooLongError(BaseException):
    """Not an Exception, which what reads a message would take for a defect of the message."""


@contextmanager
def _at_most(cpu_s: float | None) -> Iterator[None]:
    if cpu_s is None:
        yield
        return
    # Of the processor, in user mode: its signal comes between two steps of Python.
    signals.setitimer(signals.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signals.setitimer(signals.ITIMER_VIRTUAL, 0)


def _too_long(*_: object) -> None:
    raise _TakesTooLongError


if __name__ == "__main__":
    signals.signal(signals.SIGVTALRM, _too_long)
    serve(sys.stdin.buffer, sys.stdout.buffer, float(sys.argv[1]), signals.alarm)
