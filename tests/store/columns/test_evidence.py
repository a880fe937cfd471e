from collections.abc import Callable
from pathlib import Path

from store.columns.evidence import EvidenceColumns, evidence
from store.database import open_database
from store.queries import GPU_COLUMNS, SAMPLE_COLUMNS, Window
from store.writer import Writer
from telemetry.requests import RequestTimeline

START_NS = 1_763_634_000_000_000_000


def test_columns_are_selected(tmp_path: Path, request_row: Callable[..., RequestTimeline]) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'made.db'}")
    rows = [request_row(number, tenant=("acme", "blue")[number % 2]) for number in range(6)]
    with Writer(engine) as writer:
        writer.submit(rows, []).result()
    found = evidence(
        engine,
        Window(START_NS + 10**9, START_NS + 4 * 10**9),
        EvidenceColumns(
            ["received_unix_ns", "e2e_s", "of_a_later_version"], SAMPLE_COLUMNS, GPU_COLUMNS
        ),
        {"tenant": "blue"},
    )
    engine.dispose()
    assert found.requests.column_names == ["received_unix_ns", "e2e_s"]
    assert found.requests["received_unix_ns"].to_pylist() == [
        START_NS + 10**9,
        START_NS + 3 * 10**9,
    ]
    assert (found.engines.num_rows, found.gpus.num_rows, tuple(found.starts)) == (0, 0, ())
