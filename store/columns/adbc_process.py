"""Read rows of SQLite as Arrow through ADBC, in a separate process.

ADBC contains a second SQLite library. Two SQLite libraries in one process break each other's locks
(docs/decisions/006).

    python -m store.columns.adbc_process SOCKET

Queries arrive on standard input. For each answer, the client sends a new socket through SOCKET. A
result is an anonymous file, which the client maps into its memory. The process ends when standard
input is closed, or after a minute without a query.
"""

import os
import pickle
import select
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import IO, Final, NamedTuple

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa
from adbc_driver_sqlite import StatementOptions

from store.sqlite_uri import read_only_uri
from telemetry import pandas_import

IDLE_S: Final = 60.0
LENGTH: Final = Struct("<I")
_BATCH_ROWS: Final = 32_768
_AT_ONCE: Final = 4
"""An explanation runs three queries at the same time: requests, engine samples and GPU samples."""
_FIRST: Final[dict[pa.DataType, tuple[str, object]]] = {
    pa.string(): ("''", ""),
    pa.int64(): ("-9223372036854775807", -(2**63) + 1),
    pa.bool_(): ("-9223372036854775807", -(2**63) + 1),
    pa.float64(): ("0.0", 0.0),
}
"""The values of an additional first row of each result, in SQL and in Arrow. Without this row, ADBC
would assign the type integer to a column that begins with NULLs."""


class AdbcQuery(NamedTuple):
    """Statements with their parameters. `schema` is the serialised Arrow schema of the results."""

    path: str
    statements: Sequence[tuple[str, Sequence[object]]]
    schema: bytes


def read(path: str, statement: str, values: Sequence[object], schema: pa.Schema) -> int:
    """Run a statement. Return the descriptor of a file with the rows as an Arrow stream."""
    plain = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    first = ", ".join(_FIRST[kind][0] for kind in plain)
    descriptor = _unnamed_file()
    with (
        os.fdopen(os.dup(descriptor), "wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
        _batches(path, f"SELECT {first} UNION ALL {statement}", values) as batches,
    ):
        before = [_FIRST[kind][1] for kind in plain]
        for batch in batches:
            skipped = 0
            if before:
                if [column[0].as_py() for column in batch.columns] != before:
                    raise ValueError("the additional row is not the first row of the result")
                skipped, before = 1, []
            writer.write_batch(_encoded(batch.slice(skipped), schema))
    return descriptor


def _encoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        for column, kind in zip(batch.columns, schema.types, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


@contextmanager
def _batches(path: str, statement: str, values: Sequence[object]) -> Iterator[pa.RecordBatchReader]:
    # ADBC's DB-API is not used, because it imports pandas, which takes longer than most queries.
    with (
        adbc_driver_sqlite.connect(read_only_uri(Path(path))) as database,
        adbc_driver_manager.AdbcConnection(database) as connection,
        adbc_driver_manager.AdbcStatement(connection) as prepared,
    ):
        prepared.set_options(**{StatementOptions.BATCH_ROWS.value: str(_BATCH_ROWS)})
        prepared.set_sql_query(statement)
        bound = {str(place): pa.array([value]) for place, value in enumerate(values)}
        prepared.bind(pa.RecordBatch.from_pydict(bound))
        stream, _ = prepared.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as batches:
            yield batches


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):  # can be larger than a file in /dev/shm
        return os.memfd_create("tailspan-columns")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def serve(questions: IO[bytes], channel: socket.socket) -> None:
    """Answer queries until standard input is closed, or until no query arrives for `IDLE_S`."""
    running: list[Future[None]] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        while True:
            running = [each for each in running if not each.done()]
            if not select.select([questions], [], [], IDLE_S)[0]:
                if running:
                    continue
                return
            head = whole(questions, LENGTH.size)
            if not head:
                return
            message = whole(questions, *LENGTH.unpack(head))
            _, (answers,), _, _ = socket.recv_fds(channel, 1, 1)
            running.append(threads.submit(_answer, message, socket.socket(fileno=answers)))


def _answer(message: bytes, answers: socket.socket) -> None:
    descriptors: list[int] = []
    why = b""
    try:
        descriptors = _side_by_side(AdbcQuery(*pickle.loads(message)))
    except Exception as error:  # the client uses the slower query
        why = f"{type(error).__name__}: {error}".encode()
    with answers, suppress(OSError):
        socket.send_fds(answers, [LENGTH.pack(len(why)) + why], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def _side_by_side(question: AdbcQuery) -> list[int]:
    schema = pa.ipc.read_schema(pa.py_buffer(question.schema))
    with ThreadPoolExecutor(len(question.statements)) as threads:
        reading = [
            threads.submit(read, question.path, *each, schema) for each in question.statements
        ]
    return [each.result() for each in reading]


def whole(stream: IO[bytes], length: int) -> bytes:
    """Read `length` bytes of an unbuffered stream, or fewer if the stream ends earlier."""
    found = b""
    while len(found) < length and (more := stream.read(length - len(found))):
        found += more
    return found


if __name__ == "__main__":
    pandas_import.prevent()
    with socket.socket(fileno=int(sys.argv[1])) as passing:
        # unbuffered, because `select` ignores buffered data
        serve(os.fdopen(0, "rb", buffering=0), passing)
