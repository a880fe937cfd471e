"""Compute answers in a child process with limits on memory and time.

If the computation needs too much memory or hangs, only the child process ends.

A computation may yield several answers, each better than the previous one. If the child ends early,
the result is the newest answer.
"""

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any, Final, NamedTuple

from sqlalchemy import Engine

from store.access.restricted import access_of, restricted
from store.database import open_database, urls
from telemetry import child_process, pandas_import
from telemetry.store_errors import StoreError

MAX_BYTES: Final = 4 * 2**30
"""Limit on the address space of the child process, in bytes. The diagnosis of 1.4 million requests
reserves 2.6 GB; a replay needs less (docs/benchmarks.md#shares-by-replay)."""

MAX_S: Final = 120.0
"""Limit on the elapsed time of the child process, in seconds. The diagnosis of a million requests
takes about a second. On a busy machine, a replay takes up to 36 s. Its first compilation takes
about 15 s (docs/benchmarks.md#shares-by-replay)."""

MAX_AT_A_TIME: Final = 2
"""Maximum number of child processes at the same time. Further computations wait."""

_STEP, _COMPILING, _FOUND, _FAILED, _NO_STORE = b".", b"c", b"=", b"!", b"s"
"""The kinds of messages that the child sends. The first byte of a message is its kind. A message of
kind `_STEP` or `_COMPILING` has no content. In all other messages, the length of the content
follows (in `_LENGTH` bytes), and then the content."""
_LENGTH: Final = 8
_LONGEST: Final = 2**26
"""Maximum length of the content of a message, in bytes."""

_TOO_LONG: Final = "it took longer than "

_turns: Final = threading.BoundedSemaphore(MAX_AT_A_TIME)

Step = Callable[[], None]
Compute = Callable[[Engine, Step, Step], Iterator[Any]]
"""A function that yields answers, each better than the previous one. The child imports the
function. So it must be a function of a module, or a `functools.partial` of such a function. It must
call its second argument after each step, and its third argument before the code of the replay is
compiled."""


class ChildAnswer(NamedTuple):
    """`answer` is the newest answer, or None. If the computation did not finish, `problem` states
    the reason. `unavailable` is True if the database could not be read."""

    answer: Any = None
    problem: str | None = None
    unavailable: bool = False


def nothing() -> None:
    """Do nothing."""


def answer_in_child(
    engine: Engine,
    compute: Compute,
    progress: Step = nothing,
    compiling: Step = nothing,
    nice: int = 0,
) -> ChildAnswer:
    """Compute answers in a child process, and return the last answer.

    Args:
        engine: a database from `open_database` that another process can read.
        progress: called after each step of the computation.
        compiling: called before the code of the replay is compiled.
    """
    # The URLs may contain a password, so they are not passed as arguments.
    opened, access = urls(engine), access_of(engine)
    with _turns:
        try:
            child = child_process.start(__name__, answers=True)
        except OSError as error:
            return ChildAnswer(problem=f"its process cannot be started: {error.strerror}")
        assert child.stdin is not None
        assert child.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(MAX_S, end)
        timer.start()
        try:
            with suppress(BrokenPipeError):  # the child ended before it had read the question
                child.stdin.write(pickle.dumps((opened, access, compute, nice)))
                child.stdin.flush()
            found = _read(child.stdout, progress, compiling)
            status = child.wait()
        finally:
            timer.cancel()
            child_process.end(child)
    if found.problem is not None or (found.answer is not None and not status):
        return found
    if late.is_set():
        return ChildAnswer(found.answer, f"{_TOO_LONG}{MAX_S:g} s")
    return ChildAnswer(found.answer, f"its process ended with status {status}")


def took_too_long(problem: str | None) -> bool:
    """Return whether the time limit ended the computation.

    The same computation may succeed on a less busy machine."""
    return problem is not None and problem.startswith(_TOO_LONG)


def _read(messages: IO[bytes], progress: Step, compiling: Step) -> ChildAnswer:
    steps = {_STEP: progress, _COMPILING: compiling}
    newest = None
    while kind := messages.read(1):
        if step := steps.get(kind):
            step()
            continue
        length = messages.read(_LENGTH)
        size = int.from_bytes(length)
        content = messages.read(min(size, _LONGEST))
        if kind not in (_FOUND, _FAILED, _NO_STORE) or len(length) < _LENGTH or len(content) < size:
            break  # the child ended while it wrote
        if kind != _FOUND:
            return ChildAnswer(newest, content.decode(), kind == _NO_STORE)
        newest = pickle.loads(content)
    return ChildAnswer(newest)


def main() -> None:
    """Read the question from standard input, and write messages with the answers to standard
    output."""
    pandas_import.prevent()
    child_process.limit_memory(MAX_BYTES)
    # Libraries may print to standard output, so standard output is replaced: it must contain only
    # messages.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as messages:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        opened, access, compute, nice = pickle.load(sys.stdin.buffer)
        child_process.lower_priority(nice)
        child_process.end_with_parent()

        def send(kind: bytes, content: bytes | None = None) -> None:
            messages.write(kind)
            if content is not None:
                messages.write(len(content).to_bytes(_LENGTH) + content)
            messages.flush()

        try:
            engine = restricted(open_database(*opened, create=False), access)
            try:
                for answer in compute(engine, lambda: send(_STEP), lambda: send(_COMPILING)):
                    send(_FOUND, pickle.dumps(answer))
            finally:
                engine.dispose()
        except MemoryError:
            most = f"{MAX_BYTES / 2**30:g}"
            send(_FAILED, f"it needs more than {most} GiB of memory".encode())
        except StoreError as error:
            send(_NO_STORE, str(error).encode())


if __name__ == "__main__":
    main()
