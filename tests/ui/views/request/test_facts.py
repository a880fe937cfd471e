from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ui.views.request.facts import facts

Rows = Callable[..., pa.Table]
Request = Callable[..., Any]


def row_of(request_rows: Rows, request: Any) -> dict[str, Any]:
    (row,) = request_rows([request]).to_pylist()
    found: dict[str, Any] = row
    return found


def test_only_known_facts_are_listed(request_rows: Rows, one_request: Request) -> None:
    known = {what: value for what, value, _ in facts(row_of(request_rows, one_request()))}
    assert known["Prompt"] == "400 tokens, 128 cached"
    assert "LoRA" not in known
    assert "Preemptions" not in known
    assert "On arrival" not in known


def test_tokens_written_to_the_cache_are_named(request_rows: Rows, one_request: Request) -> None:
    wrote = one_request(cache_write_tokens=256)
    known = {what: value for what, value, _ in facts(row_of(request_rows, wrote))}
    assert known["Prompt"] == "400 tokens, 128 cached, 256 written to the cache"


def test_an_error_has_status_and_type(request_rows: Rows, one_request: Request) -> None:
    failed = one_request(outcome="error", http_status=500, error_type="EngineDeadError")
    known = {what: value for what, value, _ in facts(row_of(request_rows, failed))}
    assert known["Outcome"] == "error · HTTP 500 · EngineDeadError"


def test_a_corrected_clock_is_noted(request_rows: Rows, one_request: Request) -> None:
    """The log of the server itself shows the uncorrected time."""
    fast = one_request(clock_ahead_s=42.0)
    known = {what: value for what, value, _ in facts(row_of(request_rows, fast))}
    assert known["Clock"] == "42.0 s ahead; corrected"


def test_the_facts_state_that_only_the_engine_core_measured_the_request(
    request_rows: Rows, one_request: Request
) -> None:
    """vLLM's Rust front end loads no plugins, so only the engine core measures."""
    alone = one_request(basis="engine", frontend_s=None, delivery_s=None, handoff_s=None)
    known = {what: value for what, value, _ in facts(row_of(request_rows, alone))}
    assert known["Measured"].startswith("only in the engine core, from the queue")
    offline = one_request(basis="engine")
    known = {what: value for what, value, _ in facts(row_of(request_rows, offline))}
    assert known["Measured"].startswith("HTTP was not measured")
