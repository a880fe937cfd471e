"""Read columns of a SQLite file through the process `adbc_process`.

A query starts the process, which ends after a minute without a query.
"""

import logging
import mmap
import os
import pickle
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

import pyarrow as pa

from store.errors import NotQuick
from telemetry import child_process
from telemetry.tasks import Task

_LENGTH_BYTES: Final = 4
_MAX_PARTS: Final = 16

_log = logging.getLogger(__name__)


class ColumnReader:
    """Reads one database file. Any thread may call it. Queries run concurrently."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self.task = Task("column reader")

    def read(
        self, statements: Sequence[tuple[str, Sequence[object]]], schema: pa.Schema
    ) -> pa.Table:
        """The rows of all statements, concatenated in order.

        Args:
            statements: up to 16 statements, which run in parallel.
            schema: schema of the result of each statement.

        Raises:
            NotQuick: ADBC is not installed, or the process failed.
        """
        if find_spec("adbc_driver_sqlite") is None:
            raise NotQuick("adbc-driver-sqlite is not installed")
        message = pickle.dumps((self._path, list(statements), schema.serialize().to_pybytes()))
        try:
            try:
                descriptors = self._ask(message)
            except (OSError, EOFError):
                descriptors = self._ask(message)
        except (OSError, EOFError) as error:
            if self.task.problem is None:
                _log.warning(
                    "the process that reads columns ended (%s); using the slower query",
                    type(error).__name__,
                )
            self.task.failed(error)
            raise NotQuick(f"the process that reads columns ended: {error!r}") from error
        self.task.succeeded(time.time())
        return pa.concat_tables([_mapped(each) for each in descriptors])

    def close(self) -> None:
        """End the process. The next query starts a new process."""
        with self._lock:
            self._end()

    def _ask(self, message: bytes) -> list[int]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._lock:
                process, channel = self._started()
                assert process.stdin is not None
                try:
                    socket.send_fds(channel, [b"?"], [theirs.fileno()])
                    process.stdin.write(len(message).to_bytes(_LENGTH_BYTES, "little") + message)
                    process.stdin.flush()
                except OSError:
                    self._end()
                    raise
            try:
                return _received(ours)
            except (OSError, EOFError):
                with self._lock:
                    if self._process is process:  # another thread may have started a new process
                        self._end()
                raise

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._process is None or self._channel is None:
            ours, theirs = socket.socketpair()
            self._channel = ours
            with theirs:
                self._process = child_process.start(
                    "store.columns.adbc_process",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                )
        return self._process, self._channel

    def _end(self) -> None:
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.close()
        if process is not None:
            child_process.end(process)


def _received(answers: socket.socket) -> list[int]:
    """Wait for an answer, and return the descriptors of its files.

    Raises:
        EOFError: the process ended.
        NotQuick: the query failed.
    """
    answer, descriptors, _, _ = socket.recv_fds(answers, 2**16, _MAX_PARTS)
    if not answer:
        raise EOFError("no answer")
    while len(answer) - _LENGTH_BYTES < int.from_bytes(answer[:_LENGTH_BYTES], "little"):
        more = answers.recv(2**16)
        if not more:
            raise EOFError("the result is incomplete")
        answer += more
    if why := answer[_LENGTH_BYTES:].decode(errors="replace"):
        raise NotQuick(" ".join(why.split())[:300])
    return descriptors


def _mapped(descriptor: int) -> pa.Table:
    try:
        memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return pa.ipc.open_stream(pa.py_buffer(memory)).read_all()
