"""Reading messages, which is the most of the work: in this process, or in one beside it.

Python runs on one core. Spans, of which there are the most, can be read on another, by a
process that is given bodies and hands back rows. It holds nothing: it ends when its input does,
which is when we end, however that comes about; and if it ends first, another takes its place.
"""

import fcntl
import os
import pickle
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from struct import Struct
from typing import IO, Any, Final, Protocol

import numpy as np

from collector.errors import BusyError, IntakeError
from collector.normalise.batch import Batch
from collector.otlp_json import from_json
from collector.signals import TRACES, Signal
from telemetry.request_rows import MEASURES, RequestRows

_QUESTION: Final = Struct("<IQ?")
"""The body's length, the present in unix ns, whether it is JSON; the body follows."""
_PIPE_BYTES: Final = 2**20
"""A message is some hundred kB, and a pipe of 64 would take turns over each."""
_ANSWER: Final = Struct("<I")
"""Its length; a pickle follows."""


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

    def read(self, signal: Signal, body: bytes, json: bool, now_unix_ns: int) -> Batch:
        """Read a message."""
        if signal is not TRACES:
            return super().read(signal, body, json, now_unix_ns)
        try:
            answer = self._ask(body, json, now_unix_ns)
        except (OSError, EOFError) as error:
            self.close()
            raise BusyError("the process that reads spans ended; send again") from error
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

    def _ask(self, body: bytes, json: bool, now_unix_ns: int) -> Any:
        process = self._process = self._process or _started()
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


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until there are no more questions."""
    here = ReadingHere()
    while len(head := questions.read(_QUESTION.size)) == _QUESTION.size:
        length, now_unix_ns, json = _QUESTION.unpack(head)
        answer: Any
        try:
            batch = here.read(TRACES, _whole(questions, length), json, now_unix_ns)
        except IntakeError as error:
            answer = error
        else:
            rows, measures = batch.requests.rows, batch.requests.measures().tobytes()
            left = dict(batch.skipped), dict(batch.refused), batch.truncated_texts
            answer = (rows, measures, *left)
        told = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        answers.write(_ANSWER.pack(len(told)))
        answers.write(told)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
