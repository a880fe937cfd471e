"""One request from received to delivered."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ui.views.request import waterfall

Rows = Callable[..., pa.Table]
Request = Callable[..., Any]


def row_of(request_rows: Rows, request: Any) -> dict[str, Any]:
    """A request's row."""
    (row,) = request_rows([request]).to_pylist()
    found: dict[str, Any] = row
    return found


def test_the_bars_lie_end_to_end_over_the_whole(request_rows: Rows, one_request: Request) -> None:
    """From 0 to the end-to-end time without a gap."""
    bars = waterfall.bars(row_of(request_rows, one_request()))
    assert [bar.name for bar in bars] == ["frontend", "queue", "prefill", "decode", "delivery"]
    reached = 0.0
    for bar in bars:
        assert bar.from_s == pytest.approx(reached)
        reached += bar.length_s
    assert reached == pytest.approx(1.606)


def test_a_phase_that_never_began_has_no_bar(request_rows: Rows, one_request: Request) -> None:
    """It left the queue by the client's leaving: no prefill of 0 s."""
    left = one_request(prefill_s=None, decode_s=None, delivery_s=None, outcome="abort")
    assert [b.name for b in waterfall.bars(row_of(request_rows, left))] == ["frontend", "queue"]


def test_what_is_not_split_is_shown_as_such(request_rows: Rows, one_request: Request) -> None:
    """The bars reach the end in any case."""
    bars = waterfall.bars(row_of(request_rows, one_request(e2e_s=2.606)))
    assert bars[-1].name == "not split"
    assert bars[-1].length_s == pytest.approx(1.0)


def test_what_others_took_of_a_phase_is_a_bar_of_its_own(
    request_rows: Rows, one_request: Request
) -> None:
    """And the bars still reach the end."""
    row = row_of(request_rows, one_request(decode_s=1.0, decode_others_prefill_s=0.4))
    bars = waterfall.bars(row)
    taken = next(bar for bar in bars if bar.name == "others’ work")
    own = next(bar for bar in bars if bar.name == "decode")
    assert [own.length_s, taken.length_s] == pytest.approx([0.6, 0.4])
    assert taken.from_s == pytest.approx(own.from_s + 0.6)


def test_unknown_parts_are_left_out(request_rows: Rows, one_request: Request) -> None:
    """Only what the ledger told; a part of 0 s was told."""
    row = row_of(request_rows, one_request(decode_stall_s=0.0, decode_others_prefill_s=0.2))
    assert [(name, took) for name, _, took in waterfall.parts(row)] == [
        ("others’ prefill", "200 ms"),
        ("stall", "0 ms"),
    ]
    assert waterfall.parts(row_of(request_rows, one_request())) == []


def test_facts_tell_only_what_is_known(request_rows: Rows, one_request: Request) -> None:
    """No row of dashes."""
    facts = {what: value for what, value, _ in waterfall.facts(row_of(request_rows, one_request()))}
    assert facts["Prompt"] == "400 tokens, 128 of them cached"
    assert "LoRA" not in facts
    assert "Preemptions" not in facts
    assert "On arrival" not in facts


def test_an_error_says_its_status_and_type(request_rows: Rows, one_request: Request) -> None:
    """How it ended, in full."""
    failed = one_request(outcome="error", http_status=500, error_type="EngineDeadError")
    facts = {what: value for what, value, _ in waterfall.facts(row_of(request_rows, failed))}
    assert facts["Outcome"] == "error · HTTP 500 · EngineDeadError"


def test_a_clock_that_was_set_right_is_told(request_rows: Rows, one_request: Request) -> None:
    """Who compares with the server's own log looks for another instant otherwise."""
    fast = one_request(clock_ahead_s=42.0)
    facts = {what: value for what, value, _ in waterfall.facts(row_of(request_rows, fast))}
    assert facts["Clock"] == "42.0 s ahead; set back"
