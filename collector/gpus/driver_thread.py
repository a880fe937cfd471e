"""Call a driver's library on a separate daemon thread, so that a hanging call blocks no other
code."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol

from collector.gpus.reader import Absence, AbsenceReason, ReaderError, Reading

TIMEOUT_S: Final = 5.0


class Library(Protocol):
    """Reads GPUs with calls that may block."""

    def read(self) -> Reading:
        """See `GpuReader.read`."""

    def close(self) -> None:
        """Release the library's resources."""


class DriverThread:
    """Calls `library` on a separate thread, with a time limit for each call of `read`."""

    def __init__(self, library: Library, timeout_s: float = TIMEOUT_S) -> None:
        self._library = library
        self._timeout_s = timeout_s
        self._calls: queue.SimpleQueue[tuple[Callable[[], Reading], Future[Reading]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._pending: Future[Reading] | None = None

    async def read(self) -> Reading:
        """Read on the separate thread.

        Raises:
            ReaderError: reading failed or took too long, or an earlier call has not returned.
        """
        if self._pending is not None and not self._pending.done():
            raise ReaderError(
                Absence(AbsenceReason.TIMEOUT, "the driver's previous call has not returned")
            )
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpu-library", daemon=True)
            self._thread.start()
        self._pending = Future()
        self._calls.put((self._library.read, self._pending))
        answer = asyncio.wrap_future(self._pending)
        # Retrieve the exception of a call that fails late, so that asyncio does not log it.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            # Before Python 3.12, `asyncio.wait_for` ignores a cancellation that arrives with the
            # result.
            async with asyncio.timeout(self._timeout_s):
                # A driver call cannot be cancelled.
                return await asyncio.shield(answer)
        except TimeoutError as error:
            late = Absence(
                AbsenceReason.TIMEOUT, f"the driver did not return within {self._timeout_s:g} s"
            )
            raise ReaderError(late) from error

    def close(self) -> None:
        """Close the library after its current call, without waiting."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread = None

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            read, result = call
            try:
                result.set_result(read())
            except Exception as error:  # the caller raises it
                result.set_exception(error)
        self._library.close()
