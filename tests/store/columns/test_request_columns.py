import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from store import dialects
from store.columns import adbc_client
from store.columns import request_columns as request_columns_module
from store.columns.adbc_client import ColumnReader
from store.columns.request_columns import encoded_schema, request_columns, slow_because
from store.database import open_database
from store.errors import NotQuick
from store.queries import request_table
from store.writer import Writer
from telemetry.requests import RequestTimeline, Source
from telemetry.store_errors import StoreUnavailable
from telemetry.window import Window
from tests.store.conftest import put

S = 1_000_000_000
START_NS = 1_763_634_000 * S
EVER = Window(0, 2**63 - 1)

Requests = Callable[..., RequestTimeline]
Write = Callable[..., None]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the fast reader also for few rows, and fail if the slow one is used."""
    monkeypatch.setattr(request_columns_module, "FEW_ROWS", 2)

    def slow(*_: object, **__: object) -> pa.Table:
        raise AssertionError("read the slow way")

    monkeypatch.setattr(request_columns_module, "request_table", slow)


def same(engine: Engine, window: Window = EVER, **asked: object) -> pa.Table:
    found = request_columns(engine, window, **asked)  # type: ignore[arg-type]
    plain = request_table(engine, window, **asked)  # type: ignore[arg-type]
    assert found.schema == encoded_schema(plain.schema)
    assert found.cast(plain.schema).equals(plain)
    return found


def test_columns_equal_the_rows(
    engine: Engine, write: Write, request_row: Requests, quick: None
) -> None:
    write(
        *(request_row(number) for number in (3, 0, 1)),
        request_row(4, queue_s=0.25, output_tokens=7, streamed=True, tenant="", decode_s=1.5),
        request_row(5, tenant="Zürich'; --\\ %s ?", streamed=False, prefill_own_s=0.5),
        request_row(6, tenant="Zürich'; --\\ %s ?", lora="a", decode_stall_s=0.0, engine=2**40),
        # a row from a better source may be in another part
        request_row(7, request_id="chatcmpl-0", source=Source.CLIENT, tenant="a"),
    )
    found = same(engine)
    assert found.num_rows == 6
    assert same(engine, columns=["tpot_s", "tenant"]).column_names == ["tpot_s", "tenant"]
    picked = same(engine, columns=["trace_id"], equals={"tenant": "Zürich'; --\\ %s ?"})
    assert picked.num_rows == 2
    assert same(engine, equals={"tenant": None}).num_rows == 3
    assert same(engine, Window(START_NS + S, START_NS + 6 * S)).num_rows == 4


def test_a_label_is_one_dictionary_in_all_parts(
    engine: Engine, write: Write, request_row: Requests, quick: None
) -> None:
    """So the codes of all rows can be compared."""
    write(*(request_row(number, tenant="ab"[number % 2]) for number in range(9)))
    tenants = request_columns(engine, EVER, ["tenant"])["tenant"]
    words = {tuple(chunk.dictionary.to_pylist()) for chunk in tenants.chunks}
    assert len(words) == 1
    assert tenants.to_pylist() == ["ab"[number % 2] for number in range(9)]


def test_an_unknown_column_is_refused(engine: Engine) -> None:
    with pytest.raises(ValueError, match="unknown column 'price'"):
        request_columns(engine, EVER, ["price"])
    with pytest.raises(ValueError, match="unknown label 'price'"):
        request_columns(engine, EVER, ["ttft_s"], {"price": "1"})


def test_without_the_fast_reader_the_result_is_the_same(
    sqlite: Engine, request_row: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert slow_because(sqlite) is None
    monkeypatch.setattr(adbc_client, "find_spec", lambda _name: None)
    monkeypatch.setattr(request_columns_module, "FEW_ROWS", 2)
    put(sqlite, *(request_row(number) for number in range(3)))
    assert same(sqlite).num_rows == 3
    assert slow_because(sqlite) == "adbc-driver-sqlite is not installed"


@pytest.fixture
def pandas_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that exists as soon as a new process has imported pandas."""
    folder = tmp_path / "packages"
    folder.mkdir()
    noted = folder / "imported"
    (folder / "pandas.py").write_text(f"open({str(noted)!r}, 'w').close()\nraise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return noted


def test_an_ended_reader_is_restarted_and_imports_no_pandas(
    sqlite: Engine, request_row: Requests, quick: None, pandas_imports: Path
) -> None:
    put(sqlite, *(request_row(number) for number in range(3)))
    for _ in range(2):
        assert request_columns(sqlite, EVER).num_rows == 3
        process = sqlite.get_execution_options()["tailspan_column_reader"]._process
        process.kill()
        process.wait()
    assert not pandas_imports.exists()


def test_one_process_answers_several_queries_at_the_same_time(
    sqlite: Engine, request_row: Requests, quick: None
) -> None:
    """A slow query does not delay the others. If the process ends, each query is asked again."""
    put(sqlite, *(request_row(number) for number in range(3)))
    reader: ColumnReader = sqlite.get_execution_options()["tailspan_column_reader"]
    schema = pa.schema([("n", pa.int64())])
    counting = "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1"
    slow = f"{counting} FROM n WHERE i < ?) SELECT i FROM n)"
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(reader.read, [(slow, [3_000_000])], schema)
        while reader._process is None:
            time.sleep(0.01)
        assert [request_columns(sqlite, EVER).num_rows for _ in range(3)] == [3, 3, 3]
        assert not first.done()
        process = reader._process
        process.kill()
        assert request_columns(sqlite, EVER).num_rows == 3
        assert first.result(60)["n"].to_pylist() == [3_000_001]
        assert reader._process is not process


def test_readers_and_writer_share_locks(tmp_path: Path, request_row: Requests, quick: None) -> None:
    """Two processes with separate SQLite libraries."""
    engine = open_database(f"sqlite:///{tmp_path}/a #1 100%.db")
    with Writer(engine) as writer:
        writer.submit([request_row(number) for number in range(50)], []).result(10)
        for turn in range(1, 5):
            rows = [request_row(number) for number in range(turn * 50, turn * 50 + 50)]
            pending = writer.submit(rows, [])
            assert request_columns(engine, EVER, ["ttft_s"]).num_rows in (turn * 50, turn * 50 + 50)
            pending.result(10)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    assert request_columns(engine, EVER).num_rows == 250
    engine.dispose()


def test_an_absent_database_is_an_error(sqlite: Engine, url: str, request_row: Requests) -> None:
    with sqlite.begin() as connection:
        connection.exec_driver_sql("DROP TABLE requests")
    with pytest.raises(StoreUnavailable, match="no such table"):
        request_columns(sqlite, EVER)


def test_a_reader_that_ends_again_and_again_is_counted(
    sqlite: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (task,) = dialects.of(sqlite).tasks(sqlite)
    (reader,) = [
        each for each in sqlite.get_execution_options().values() if isinstance(each, ColumnReader)
    ]
    schema = pa.schema([("engine", pa.int64())])
    question: tuple[str, list[object]] = ("SELECT engine FROM requests", [])

    def ended(_asked: bytes) -> list[int]:
        raise EOFError

    with monkeypatch.context() as broken:
        broken.setattr(reader, "_ask", ended)
        for _ in range(2):
            with pytest.raises(NotQuick, match="ended"):
                reader.read([question], schema)
    assert (task.name, task.failures, task.problem) == ("column reader", 2, "EOFError")
    assert caplog.text.count("using the slower query") == 1
    monkeypatch.setattr(reader, "_ask", lambda _: [0])
    monkeypatch.setattr(adbc_client, "_mapped", lambda _: pa.table({"engine": [7]}))
    assert reader.read([question], schema).num_rows == 1
    assert task.problem is None
