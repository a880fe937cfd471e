"""Replay the causes of an explanation in a child process with limits on memory and time.

If the replay needs too much memory or hangs, only the child ends. The shares by accounting then
remain, and `not_replayed` states the reason.
"""

import os
import pickle
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import IO, Final

from sqlalchemy import Engine

from analysis.counterfactual.explain import with_replayed_shares, without_replay
from diagnosis.explanation import Explanation
from store.database import open_database
from store.errors import StoreError
from telemetry import child_process

MOST_BYTES: Final = 4 * 2**30
"""Limit on the address space of the process. In a window of 1.2 million requests, the process needs
1.7 GB, of which it uses 0.3 GB (docs/benchmarks.md#shares-by-replay)."""

MOST_S: Final = 120.0
"""Limit on the elapsed time. On a busy machine, a replay takes at most 36 s, and its first
compilation about 15 s (docs/benchmarks.md#shares-by-replay)."""

MOST_AT_A_TIME: Final = 2
"""Maximum number of these processes that one process starts at a time. Other replays wait."""

_STEP, _COMPILING, _FOUND, _FAILED = b".", b"c", b"=", b"!"
"""The first byte of each message of the child. A step and the beginning of a compilation have no
content. The content of the last message extends to the end of the output."""

_turns: Final = threading.BoundedSemaphore(MOST_AT_A_TIME)


def replayed(
    engine: Engine,
    explanation: Explanation,
    progress: Callable[[], None] = lambda: None,
    compiling: Callable[[], None] = lambda: None,
    nice: int = 0,
) -> Explanation:
    """Return an explanation with shares from replays, as `with_replayed_shares` does in a child
    process.

    Args:
        engine: from `open_database`. The database must be readable from another process.
        explanation: an explanation by accounting.
        progress: called after each replayed combination of causes.
        compiling: called if the replay is compiled first, which takes about 15 s.
        nice: by how much to lower the priority of the child.
    """
    if (known := without_replay(explanation)) is not None:
        return known
    with _turns:
        try:
            return _from_child(engine, explanation, progress, compiling, nice)
        except _NoAnswerError as error:
            return replace(explanation, not_replayed=str(error))


class _NoAnswerError(Exception):
    """The process ended without an answer. The message has the reason."""


def _from_child(
    engine: Engine,
    explanation: Explanation,
    progress: Callable[[], None],
    compiling: Callable[[], None],
    nice: int,
) -> Explanation:
    # The database URL may contain a password, so it is sent on standard input, not as an argument.
    url = engine.url.render_as_string(hide_password=False)
    try:
        child = child_process.start(__name__, answers=True)
    except OSError as error:
        raise _NoAnswerError(f"its process cannot be started: {error.strerror}") from error
    assert child.stdin is not None
    assert child.stdout is not None
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(MOST_S, end)
    timer.start()
    try:
        with suppress(BrokenPipeError):  # it ended before it had read the question
            child.stdin.write(pickle.dumps((url, explanation, nice)))
            child.stdin.flush()
        found = _answer(child.stdout, progress, compiling)
        if found is not None:
            return found
        status = child.wait()
    finally:
        timer.cancel()
        child_process.end(child)
    if late.is_set():
        raise _NoAnswerError(f"it took longer than {MOST_S:g} s")
    raise _NoAnswerError(f"its process ended with status {status}")


def _answer(
    answers: IO[bytes], progress: Callable[[], None], compiling: Callable[[], None]
) -> Explanation | None:
    """Read the messages of the child, and return the explanation, or None without an answer."""
    told = {_STEP: progress, _COMPILING: compiling}
    while each := told.get(kind := answers.read(1)):
        each()
    content = answers.read()
    if kind == _FAILED:
        raise _NoAnswerError(content.decode())
    if kind != _FOUND:
        return None
    try:
        found: Explanation = pickle.loads(content)
    except (EOFError, pickle.UnpicklingError):  # the child ended while it wrote
        return None
    return found


def main() -> None:
    """Read the explanation on standard input, and write the messages. Runs within the limit."""
    child_process.limit_memory(MOST_BYTES)
    # What a library prints must not become a part of an answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        url, explanation, nice = pickle.load(sys.stdin.buffer)
        child_process.give_way(nice)
        child_process.end_with_parent()

        def tell(message: bytes) -> None:
            answers.write(message)
            answers.flush()

        try:
            tell(_FOUND + pickle.dumps(_replayed_here(url, explanation, tell)))
        except MemoryError:
            tell(_FAILED + f"it needs more than {MOST_BYTES / 2**30:g} GiB of memory".encode())
        except StoreError as error:
            tell(_FAILED + str(error).encode())


def _replayed_here(
    url: str, explanation: Explanation, tell: Callable[[bytes], None]
) -> Explanation:
    from replay.loop import warm

    warm(lambda: tell(_COMPILING))
    engine = open_database(url, create=False)
    try:
        return with_replayed_shares(engine, explanation, lambda: tell(_STEP))
    finally:
        engine.dispose()


if __name__ == "__main__":
    main()
