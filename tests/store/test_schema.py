from dataclasses import dataclass, fields
from typing import get_type_hints

import pyarrow as pa
import pytest
from sqlalchemy import Table

from store.schema import GPUS, REQUESTS, SAMPLES, STARTS, arrow_type, fields_of, labels_of
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline
from telemetry.starts import EngineStart

NOUNS = [
    (REQUESTS, RequestTimeline),
    (SAMPLES, EngineSample),
    (STARTS, EngineStart),
    (GPUS, GpuSample),
]


@pytest.mark.parametrize(("table", "noun"), NOUNS)
def test_a_table_has_the_fields_of_its_row_type(table: Table, noun: type) -> None:
    assert [column.name for column in table.columns] == [f.name for f in fields(noun)]
    may_be_unknown = {name for name, hint in get_type_hints(noun).items() if "None" in str(hint)}
    assert {column.name for column in table.columns if column.nullable} == may_be_unknown
    arrow = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    for column in table.columns:
        assert arrow_type(column.name, noun) == arrow[column.type.python_type], column.name


def test_labels_are_names_and_numbers_that_name() -> None:
    labels = labels_of(RequestTimeline)
    assert {"tenant", "outcome", "engine", "http_status", "streamed"} <= set(labels)
    assert not {"e2e_s", "prompt_tokens", "received_unix_ns"} & set(labels)


def test_a_type_without_a_column_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Odd:
        blob: bytes

    with pytest.raises(TypeError, match=r"blob: no column type for .*bytes.*allowed: str, bool"):
        fields_of(Odd)
