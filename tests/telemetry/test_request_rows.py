import math
from dataclasses import replace

import numpy as np
import pytest

from telemetry.request_rows import MEASURES, PLACE, RequestRows, request_of, row_of
from telemetry.requests import FIELDS, Basis, Outcome, PricedBy, RequestTimeline, Source

WHOLE = RequestTimeline(
    trace_id="a" * 32,
    span_id="b" * 16,
    request_id="chatcmpl-1",
    received_unix_ns=1_763_632_800_000_000_001,
    e2e_s=1.5,
    outcome=Outcome.LENGTH,
    source=Source.NATIVE,
    basis=Basis.ENGINE,
    decode_s=1.0,
    output_tokens=21,
    cost_usd=0.25,
    priced_by=PricedBy.TOKENS,
)
SPARSE = replace(WHOLE, trace_id="c" * 32, decode_s=None, output_tokens=1, priced_by=None)


@pytest.mark.parametrize("request_", [WHOLE, SPARSE])
def test_a_request_is_restored_from_its_row(request_: RequestTimeline) -> None:
    row = row_of(request_)
    assert request_of(row) == request_
    assert request_of(row).outcome is Outcome.LENGTH
    assert {type(value) for value in row} <= {str, int, float, type(None)}


def test_rows_are_a_sequence_of_requests() -> None:
    rows = RequestRows.of([WHOLE, SPARSE])
    assert list(rows) == [WHOLE, SPARSE]
    assert list(rows[1:]) == [SPARSE]
    assert RequestRows.of(rows) is rows


def test_the_unknown_is_not_a_number() -> None:
    rows = RequestRows.of([WHOLE, SPARSE])
    assert rows.column("decode_s") == [1.0, None]
    for name, values in (("decode_s", [1.0]), ("tpot_s", [0.05])):
        found = rows.numbers(name)
        assert found[:1].tolist() == values
        assert math.isnan(found[1])
    assert rows.numbers("cost_usd").tolist() == [0.25, 0.25]
    assert RequestRows().numbers("decode_s").size == 0


def test_measures_travel_with_their_rows() -> None:
    one, other = RequestRows.of([WHOLE]), RequestRows.of([SPARSE])
    joined = RequestRows.joined([RequestRows(one.rows, one.measures()), other])
    assert joined == RequestRows.of([WHOLE, SPARSE])
    np.testing.assert_array_equal(joined.measures(), RequestRows(joined.rows).measures())
    np.testing.assert_array_equal(joined.taken([1]).measures(), other.measures())
    assert joined.taken([0, 1]) is joined
    assert joined.measures().shape == (len(MEASURES), 2)


def test_the_cost_is_not_a_measure() -> None:
    """The cost is added to a row after its measures were set."""
    assert "cost_usd" not in MEASURES
    assert FIELDS[PLACE["cost_usd"] :] == ("cost_usd", "priced_by")
