"""The process that reads SQLite's rows as Arrow through ADBC, beside the process that asks.

ADBC brings its own SQLite library. Two of them in one process break each other's locks
(docs/decisions/006), so it runs in a process that opens the database in no other way, and only to
read. Each answer is a file without a name, which the asking process maps into its memory: nothing
is copied between the two.

    python -m store.columns.adbc_process SOCKET

Questions come on standard input. The process ends with it, or after a minute without a question.
"""

import os
import pickle
import select
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from struct import Struct
from typing import IO, Final, NamedTuple
from urllib.parse import quote

import adbc_driver_manager
import adbc_driver_sqlite
import pyarrow as pa
from adbc_driver_sqlite import StatementOptions

IDLE_S: Final = 60.0
LENGTH: Final = Struct("<I")
_BATCH_ROWS: Final = 32_768
_FIRST: Final[dict[pa.DataType, tuple[str, object]]] = {
    pa.string(): ("''", ""),
    pa.int64(): ("-9223372036854775807", -(2**63) + 1),
    pa.bool_(): ("-9223372036854775807", -(2**63) + 1),
    pa.float64(): ("0.0", 0.0),
}
"""A row before all others, in SQL and in Arrow: ADBC takes a column's type from the first rows,
and would take one that is unknown there for whole numbers."""


class Question(NamedTuple):
    """Statements, each with the values it binds: read side by side, answered in their order.

    `schema` is Arrow's of the answers, serialised.
    """

    path: str
    statements: Sequence[tuple[str, Sequence[object]]]
    schema: bytes


def read(path: str, statement: str, values: Sequence[object], schema: pa.Schema) -> int:
    """Answer a statement: the descriptor of a file with Arrow's stream in it."""
    plain = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    first = ", ".join(_FIRST[kind][0] for kind in plain)
    descriptor = _nameless()
    with (
        os.fdopen(os.dup(descriptor), "wb") as file,
        pa.ipc.new_stream(file, schema) as writer,
        _asked(path, f"SELECT {first} UNION ALL {statement}", values) as batches,
    ):
        before = [_FIRST[kind][1] for kind in plain]
        for batch in batches:  # one at a time in memory
            skipped = 0
            if before:
                if [column[0].as_py() for column in batch.columns] != before:
                    raise ValueError("the first row is not the first")
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
def _asked(path: str, statement: str, values: Sequence[object]) -> Iterator[pa.RecordBatchReader]:
    # Not by way of ADBC's DB-API: it imports pandas, which takes longer than most questions.
    with (
        adbc_driver_sqlite.connect(f"file:{quote(path)}?mode=ro") as database,
        adbc_driver_manager.AdbcConnection(database) as connection,
        adbc_driver_manager.AdbcStatement(connection) as asked,
    ):
        asked.set_options(**{StatementOptions.BATCH_ROWS.value: str(_BATCH_ROWS)})
        asked.set_sql_query(statement)
        bound = {str(place): pa.array([value]) for place, value in enumerate(values)}
        asked.bind(pa.RecordBatch.from_pydict(bound))
        stream, _ = asked.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as batches:
            yield batches


def _nameless() -> int:
    if hasattr(os, "memfd_create"):  # not limited by the size of /dev/shm
        return os.memfd_create("tailspan-columns")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def serve(questions: IO[bytes], answers: socket.socket) -> None:
    """Answer until there are no more questions."""
    while select.select([questions], [], [], IDLE_S)[0]:
        head = whole(questions, LENGTH.size)
        if not head:
            return
        asked = Question(*pickle.loads(whole(questions, *LENGTH.unpack(head))))
        descriptors: list[int] = []
        why = b""
        try:
            descriptors = _side_by_side(asked)
        except Exception as error:  # whatever it is, who asked has another way
            why = f"{type(error).__name__}: {error}".encode()
        socket.send_fds(answers, [LENGTH.pack(len(why)) + why], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _side_by_side(asked: Question) -> list[int]:
    schema = pa.ipc.read_schema(pa.py_buffer(asked.schema))
    with ThreadPoolExecutor(len(asked.statements)) as threads:
        reading = [threads.submit(read, asked.path, *each, schema) for each in asked.statements]
    return [each.result() for each in reading]


def whole(stream: IO[bytes], length: int) -> bytes:
    """So many bytes of a stream without a buffer; fewer only where it ends."""
    found = b""
    while len(found) < length and (more := stream.read(length - len(found))):
        found += more
    return found


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as answering:
        # Unbuffered: what lay in a buffer would not be seen by `select`.
        serve(os.fdopen(0, "rb", buffering=0), answering)
