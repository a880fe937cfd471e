from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest

from diagnosis.inputs.arrow import requests_of
from diagnosis.one_request.account import LatencyAccount, account
from diagnosis.one_request.delayers import TenantDelay
from telemetry.latency_rank import LatencyRank
from ui.views.request import words

Rows = Callable[..., pa.Table]
Request = Callable[..., Any]
NO_PHASES = dict.fromkeys(
    ("frontend_s", "queue_s", "prefill_s", "decode_s", "delivery_s", "ttft_s"), None
)


def row_and_account(request_rows: Rows, request: Any) -> tuple[dict[str, Any], LatencyAccount]:
    table = request_rows([request])
    return table.to_pylist()[0], account(requests_of(table), 0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "The response took <b>1.61 s</b>, its first byte <b>105 ms</b>."),
        ({"streamed": False}, "The response took <b>1.61 s</b>, not streamed."),
        ({"outcome": "length"}, "ended at its token limit"),
        ({"outcome": "abort"}, "The client disconnected after <b>1.61 s</b>, its first byte"),
        (
            {**NO_PHASES, "outcome": "abort", "e2e_s": 1.2, "queue_s": 1.0},
            "The client disconnected after <b>1.20 s</b>, before a first token.",
        ),
        (
            {**NO_PHASES, "outcome": "rejected", "e2e_s": 0.002, "http_status": 429},
            "It was refused after <b>2.00 ms</b>, before an engine received it (HTTP 429).",
        ),
        ({"outcome": "error"}, "The server failed after"),
    ],
)
def test_the_sentence_has_the_outcome(
    request_rows: Rows, one_request: Request, changes: dict[str, Any], expected: str
) -> None:
    row, its = row_and_account(request_rows, one_request(**changes))
    assert expected in words.sentence(row, its, UTC)


def test_the_sentence_names_the_largest_part(request_rows: Rows, one_request: Request) -> None:
    row, its = row_and_account(request_rows, one_request())
    assert "Most of it: decode <b>1.50 s</b> (93 %)." in (words.sentence(row, its, UTC))
    row, its = row_and_account(request_rows, one_request(**NO_PHASES, e2e_s=1.0, source="client"))
    assert "Most of it" not in words.sentence(row, its, UTC)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (LatencyRank(1001, 987, 13), "slower than <b>99 %</b> of 1,000 by"),
        (LatencyRank(1001, 1000, 0), "slower than <b>all</b> of 1,000 by"),
        (LatencyRank(101, 10, 90), "faster than <b>90 %</b> of 100 by"),
        (LatencyRank(8, 7, 0), "too few similar requests to compare its"),
    ],
)
def test_the_request_is_ranked_among_similar_requests(
    request_rows: Rows, one_request: Request, place: LatencyRank, expected: str
) -> None:
    row, _ = row_and_account(request_rows, one_request())
    found = words.rank(row, {"ttft_s": place})
    assert found is not None
    assert expected in found
    assert "of llama-3-8b on /v1/chat/completions" in found
    assert words.rank(row, {}) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"source": "native"}, "from the engine's native spans"),
        ({"source": "client", **NO_PHASES, "e2e_s": 1.0}, "from clients only"),
        ({"outcome": "rejected", **NO_PHASES, "e2e_s": 1.0}, "It did not reach an engine"),
        ({}, "step ledger has no entry"),
        ({"decode_own_s": 1.5}, None),
    ],
)
def test_unknown_parts_are_noted(
    request_rows: Rows, one_request: Request, changes: dict[str, Any], expected: str | None
) -> None:
    row, _ = row_and_account(request_rows, one_request(**changes))
    found = words.less(row)
    assert found is expected is None or (
        found is not None and expected is not None and expected in found
    )


def test_the_parts_in_the_table_sum_to_the_latency(
    request_rows: Rows, one_request: Request
) -> None:
    row, its = row_and_account(request_rows, one_request())
    table = words.parts_table(its, row["e2e_s"])
    assert table.count("<tr>") == 1 + len(its.parts_s) + 1
    assert "<b>1.61 s</b>" in table


def test_delays_are_listed_by_tenant() -> None:
    many = [TenantDelay(f"t{number}", 1, 0.01, 0.0) for number in range(9)]
    text = words.tenant_delays([TenantDelay("<b>acme", 3, 0.4, 0.2), *many])
    assert "&lt;b&gt;acme</td><td>3</td><td>+400 ms</td><td>+200 ms</td><td><b>+600 ms" in text
    assert "<td>–</td>" in text  # the decodes caused no delay
    assert "2 more tenants delayed it by 20.0 ms in all." in text
