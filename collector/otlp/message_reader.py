"""Read messages in this process or in a separate process. A separate process can use a second CPU
core.

The separate process has no state. It ends when its standard input is closed. If it ends
unexpectedly, it is restarted. A message may use 0.75 s of CPU time, so that a crafted message
cannot make all senders wait. A message is refused permanently if it causes an exception, or if the
process ends twice while it reads the message.
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

from collector.errors import IntakeBusyError, IntakeError, TooLargeError, UnreadableError
from collector.normalise.batch import NormalisedBatch
from collector.otlp.json_mapping import from_json
from collector.signals import SIGNALS, TRACES, Signal
from telemetry import child_process
from telemetry.request_rows import MEASURES, RequestRows
from telemetry.tasks import Task

MAX_CPU_S: Final = 0.75
"""Maximum CPU time for one message. 16 MiB of the plugin's spans take 0.35 s, and the largest JSON
message takes 0.65 s."""

_QUESTION: Final = Struct("<IQ?B")
"""Request header. It contains the length of the body, the message's arrival in unix nanoseconds,
whether the body is JSON, and the signal's index in `SIGNALS`."""
_PIPE_BYTES: Final = 2**20
"""Size of the pipe's buffer. The default is 64 KiB, but a message can have hundreds of kB."""
_ANSWER: Final = Struct("<I")
"""Response header. It has the length of the pickle that follows."""
MAX_S: Final = 60
"""Seconds after which the process is killed. The largest message takes about 3 s on a busy core."""

_log = logging.getLogger(__name__)


class MessageReader(Protocol):
    """Converts a message to a batch."""

    def read_known(self, signal: Signal, body: bytes, now_unix_ns: int) -> NormalisedBatch | None:
        """Read a protobuf message if this takes much less than a millisecond. Return None if it
        would take longer. Thread-safe."""

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        """Read a message, or raise IntakeError. Call from one thread only."""

    def close(self) -> None:
        """Stop reading."""


class LocalReader:
    """Reads messages in the calling thread."""

    def read_known(self, signal: Signal, body: bytes, now_unix_ns: int) -> NormalisedBatch | None:
        """Return None, so that `read` is called for every message."""
        return None

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        """Read a message."""
        return signal.read(from_json(signal.request, body) if json else body, now_unix_ns)

    def close(self) -> None:
        """Do nothing."""


class ProcessReader(LocalReader):
    """Reads messages in a separate process, which the first message starts."""

    def __init__(self, max_cpu_s: float = MAX_CPU_S) -> None:
        self._max_cpu_s = max_cpu_s
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self.task = Task("message reader")

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> NormalisedBatch:
        """Read a message."""
        answer = self._answer(signal, body, json, now_unix_ns)
        if isinstance(answer, UnreadableError):
            self.task.failed(answer)
            _log.error("a message of %s could not be read: %s", signal.name, answer)
            raise UnreadableError("reading this message failed, so it is refused")
        self.task.succeeded(time.time())
        if isinstance(answer, IntakeError):
            raise answer
        if isinstance(answer, NormalisedBatch):
            return answer
        rows, measures, skipped, refused, truncated_texts, dropped_values = answer
        return NormalisedBatch(
            requests=RequestRows(rows, np.frombuffer(measures).reshape(len(MEASURES), -1)),
            accepted=len(rows),
            skipped=Counter(skipped),
            refused=Counter(refused),
            truncated_texts=truncated_texts,
            dropped_values=Counter(dropped_values),
        )

    def close(self) -> None:
        """End the process, even if it is reading a message. Thread-safe."""
        self._closed = True
        self._end()

    def _stopped(self) -> bool:
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
            except OSError as error:
                self.task.failed(error)
                raise IntakeBusyError(
                    f"the process that reads messages cannot be started: {error.strerror}"
                ) from error
            try:
                return self._ask(process, signal, body, json, now_unix_ns)
            # UnpicklingError means that the process ended while it wrote. ValueError means that
            # `close` was called.
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
                        "the process that reads messages ended twice on this message, so it is"
                        " refused"
                    ) from error
        raise IntakeBusyError("the collector is stopping; send again")

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
        (length,) = _ANSWER.unpack(_read_exactly(process.stdout, _ANSWER.size))
        return pickle.loads(_read_exactly(process.stdout, length))


def _started(max_cpu_s: float) -> subprocess.Popen[bytes]:
    process = child_process.start("collector.otlp.message_reader", str(max_cpu_s), answers=True)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        with suppress(OSError, AttributeError):  # not permitted, or not Linux
            fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return process


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
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
    """Read messages until the input stream ends.

    Args:
        questions: messages, each with the header `_QUESTION`.
        answers: results, each with the header `_ANSWER`.
        max_cpu_s: maximum CPU time for one message, or None for no limit.
        limit: sets the seconds after which the kernel ends this process. 0 sets no limit.
    """
    here = LocalReader()
    while len(head := questions.read(_QUESTION.size)) == _QUESTION.size:
        length, now_unix_ns, json, number = _QUESTION.unpack(head)
        limit(MAX_S)
        body = _read_exactly(questions, length)
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
        except Exception as error:  # a defect
            answer = UnreadableError(_error_position(error))
        else:
            only_requests = signal is TRACES and not (
                batch.probes or batch.operations or batch.lookups or batch.cold_starts
            )
            answer = _rows(batch) if only_requests else batch
        pickled = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        answers.write(_ANSWER.pack(len(pickled)))
        answers.write(pickled)
        answers.flush()
        limit(0)


def _error_position(error: Exception) -> str:
    """An error's type and line of code. The error's text is left out, because it may contain a
    span's content."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}"


def _rows(batch: NormalisedBatch) -> Any:
    """The content of a batch of requests in a form that is faster to pickle."""
    rows, measures = batch.requests.rows, batch.requests.measures().tobytes()
    counts = dict(batch.skipped), dict(batch.refused)
    return rows, measures, *counts, batch.truncated_texts, dict(batch.dropped_values)


class _TakesTooLongError(BaseException):
    """Reading took too much CPU time. It is a BaseException, so that the reading code does not
    catch it."""


@contextmanager
def _at_most(cpu_s: float | None) -> Iterator[None]:
    if cpu_s is None:
        yield
        return
    # This timer counts CPU time in user mode. It does not interrupt a long call of C code.
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
