import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from analysis.over_time import percentiles, phases
from analysis.over_time.time_bins import bins_of_width
from ui.views.requests import words

Rows = Callable[..., pa.Table]
HOSTILE = "<script>alert(1)</script>" + "x" * 10_000


def plain_text(sentence: str) -> str:
    return re.sub(r"<[^>]+>", "", sentence)


def sentence_of(table: pa.Table, **equals: str) -> str:
    return words.sentence(table, phases.layers(table), 900, equals)


def test_number_tail_and_reason(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    rows = [
        one_request(i, queue_s=5.0 if i < 8 else 0.01, ttft_s=5.1 if i < 8 else 0.1)
        for i in range(800)
    ]
    text = plain_text(sentence_of(request_rows(rows)))
    assert text.startswith("800 requests in 15 min: P99 TTFT 100 ms [100 ms to 5.10 s]")
    assert "For the slowest 1 %, queue took 98 % of the time to first token" in text
    assert "queue took 76 % of the time end to end." in text


def test_too_few_requests_have_no_p99(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    text = plain_text(sentence_of(request_rows([one_request(i, ttft_s=0.1 + i) for i in range(3)])))
    assert text.startswith("3 requests in 15 min: too few for a P99 (at least 381 needed)")
    assert "the slowest TTFT 2.10 s, E2E 1.61 s." in text
    assert "For the slowest, prefill took" in text


def test_one_request_is_singular(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    assert plain_text(sentence_of(request_rows([one_request()]))).startswith("1 request in 15 min:")


def test_no_ttft_is_reported(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    unknown = dict.fromkeys(("queue_s", "prefill_s", "decode_s", "delivery_s", "ttft_s"))
    text = plain_text(
        sentence_of(request_rows([one_request(i, outcome="rejected", **unknown) for i in range(3)]))
    )
    assert "the slowest E2E 4.00 ms" in text
    assert "TTFT" not in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize("label", ["tenant", "model", "route", "replica"])
def test_a_hostile_filter_is_shown_as_text(
    request_rows: Rows, one_request: Callable[..., Any], label: str
) -> None:
    text = sentence_of(request_rows([one_request()]), **{label: HOSTILE})
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert len(text) < 3000


def test_every_outcome_is_counted(request_rows: Rows, one_request: Callable[..., Any]) -> None:
    rows = [one_request(i, outcome=o) for i, o in enumerate(("stop", "stop", "abort", "error"))]
    assert words.outcomes(request_rows(rows)) == {
        "stop": 2, "length": 0, "abort": 1, "error": 1, "rejected": 0,
    }  # fmt: skip


def test_a_list_of_joined_requests_states_that_older_rows_are_missing() -> None:
    text = words.joined(3, "TTFT", None)
    assert text.startswith("3 joined requests, the slowest by TTFT first.")
    assert "newest" not in text
    assert "Only the newest 20,000 rows" in words.joined(3, "TTFT", 20_000)


@pytest.mark.parametrize(
    ("per_bin", "expected"),
    [((400, 500), None), ((100, 500), "1 of 2 bins"), ((100, 120), "No bin"), ((0, 500), None)],
)
def test_a_gap_is_explained(per_bin: tuple[int, int], expected: str | None) -> None:
    index = np.repeat([0, 1], per_bin)
    bins = bins_of_width(0, 120 * 10**9, 60 * 10**9)
    found = percentiles.per_bin(np.ones(sum(per_bin)), index, 2)
    sentence = words.gap_sentence(found, bins)
    if expected is None:
        assert sentence is None
    else:
        assert sentence is not None
        assert expected in sentence
        assert "381 requests" in sentence
        assert "about 1" in sentence
