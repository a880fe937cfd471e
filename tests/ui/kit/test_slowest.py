import json
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

from analysis.over_time import phases
from analysis.over_time.rolled import ROWS
from ui.kit import slowest, slowest_table
from ui.kit.request_key import RequestKey
from ui.kit.terms import LATENCY_NAMES

Rows = Callable[..., pa.Table]


def shown(table: pa.Table, latency: str = "ttft_s") -> list[dict[str, Any]]:
    return slowest.shown_rows(table, phases.layers(table), latency, str, UTC, 900)


def test_the_slowest_requests_are_first(
    request_rows: Rows, one_request: Callable[..., Any]
) -> None:
    rows = [one_request(i, ttft_s=None if i % 3 == 0 else i / 100) for i in range(90)]
    found = shown(request_rows(rows))
    assert len(found) == ROWS
    assert found[0]["id"] == "chatcmpl-00000059"
    assert [row["ttft_s"] for row in found[:3]] == ["890 ms", "880 ms", "860 ms"]


def test_a_row_has_its_requests_key(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    request = one_request(7)
    (row,) = shown(request_rows([request]))
    key = RequestKey.parse(row["key"])
    assert key == RequestKey(request.received_unix_ns, request.trace_id, request.span_id)


def test_phases_share_one_scale(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    rows = [one_request(1, decode_s=1.894, ttft_s=2.0), one_request(2, decode_s=0.894)]
    sums = [sum(p["share"] for p in row["phases"]) for row in shown(request_rows(rows))]
    assert sums == pytest.approx([1.0, 0.5], abs=1e-4)


def test_unknown_values_are_dashes(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    names = ("request_id", "tenant", "replica", "itl_max_s", "prompt_tokens", "cached_tokens",
             "output_tokens")  # fmt: skip
    (row,) = shown(request_rows([one_request(1, **dict.fromkeys(names))]))
    assert row["id"] == f"{1:032x}"
    assert [row[n] for n in ("tenant", "replica", "tokens", "cached", "tpot_s")] == [
        "–", "–", "– → –", "–", "–",
    ]  # fmt: skip


def test_hostile_text_is_cut(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=alert(1)>\x00\u202e" + "y" * 10_000
    rows = [one_request(1, request_id=hostile, tenant=hostile, replica=hostile)]
    (row,) = shown(request_rows(rows))
    assert len(json.dumps(row)) < 2500
    assert "\u202e" not in row["id"] + row["tenant"]
    script = (slowest_table.FOLDER / "slowest_table.js").read_text()
    assert "innerHTML" not in script
    assert "insertAdjacentHTML" not in script


@pytest.mark.parametrize("latency", LATENCY_NAMES)
def test_the_chosen_latency_is_a_column_that_narrow_pages_keep(latency: str) -> None:
    columns = slowest.shown_columns(latency)
    names = [column["name"] for column in columns]
    assert len(names) == len(set(names))
    assert next(c["rank"] for c in columns if c["name"] == latency) == 1


def test_no_requests_make_no_rows(request_rows: Rows) -> None:
    assert shown(request_rows([])) == []
