from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.inputs.arrow import requests_of, samples_of
from diagnosis.inputs.hung_engines import UNFINISHED, EngineHang, hangs, with_unfinished
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Samples
from diagnosis.latency.parts import PART_INDEX, latency_s, split_s
from diagnosis.question import Metric
from tests.diagnosis.making import S, labels


def samples(*rows: dict[str, Any]) -> Samples:
    usual = {"replica": "r0", "engine": 0, "process": 1, "in_flight": 3}
    return samples_of(pa.Table.from_pylist([{**usual, **row} for row in rows]))


def ages(begin_s: int, end_s: int, **about: Any) -> list[dict[str, Any]]:
    """Return a sample per second, with the time since a last step at `begin_s`."""
    return [
        {"at_unix_ns": at * S, "last_step_age_s": float(at - begin_s), **about}
        for at in range(begin_s, end_s)
    ]


def test_a_time_without_steps_and_with_requests_is_a_hang() -> None:
    assert hangs(samples(*ages(100, 180))) == [EngineHang("r0", 0, 100 * S, 179 * S)]


@pytest.mark.parametrize(
    "rows",
    [
        ages(100, 155),  # not long enough
        ages(100, 180, in_flight=0),
        [{"at_unix_ns": 100 * S, "last_step_age_s": None}],
    ],
)
def test_a_short_pause_and_an_idle_engine_are_not_hangs(rows: list[dict[str, Any]]) -> None:
    assert hangs(samples(*rows)) == []


def test_samples_without_these_fields_show_no_hang() -> None:
    assert hangs(samples_of(pa.Table.from_pylist([{"at_unix_ns": 0, "replica": "r0"}]))) == []


def test_a_step_counts_if_any_front_end_reports_it() -> None:
    """Only one of several front ends receives the statistics of a step."""
    other = [
        {"at_unix_ns": at * S + 5, "last_step_age_s": 0.1, "process": 2} for at in range(100, 180)
    ]
    assert hangs(samples(*ages(100, 180), *other)) == []


def test_a_hang_of_one_engine_is_reported_while_another_takes_steps() -> None:
    other = [{"at_unix_ns": at * S, "last_step_age_s": 0.1, "engine": 1} for at in range(100, 180)]
    assert hangs(samples(*ages(100, 180), *other)) == [EngineHang("r0", 0, 100 * S, 179 * S)]


def test_requests_of_the_engine_that_takes_steps_are_unchanged() -> None:
    other = [{"at_unix_ns": at * S, "last_step_age_s": 0.1, "engine": 1} for at in range(100, 180)]
    given = requests(["abort", "abort"])
    numbered = replace(given, numbers={**given.numbers, "engine": np.array([0.0, 1.0])})
    found = with_unfinished(numbered, samples(*ages(100, 180), *other))
    assert found.label("outcome").is_value(UNFINISHED).tolist() == [True, False]


def test_hangs_of_two_replicas_are_reported_separately() -> None:
    found = hangs(samples(*ages(0, 70), *ages(200, 300), *ages(200, 300, replica="r1", process=7)))
    assert found == [
        EngineHang("r0", 0, 0, 69 * S),
        EngineHang("r0", 0, 200 * S, 299 * S),
        EngineHang("r1", 0, 200 * S, 299 * S),
    ]


def requests(outcomes: list[str]) -> Requests:
    number = len(outcomes)
    return Requests(
        np.full(number, 110 * S),
        {
            "e2e_s": np.full(number, 60.0),
            "ttft_s": np.array([np.nan] * (number - 1) + [2.0]),
            "frontend_s": np.full(number, 0.5),
            "queue_s": np.array([59.5] * (number - 1) + [1.0]),
            "prefill_s": np.array([np.nan] * (number - 1) + [0.5]),
        },
        {"outcome": labels(outcomes), "replica": labels(["r0"] * number)},
    )


def test_requests_that_did_not_end_have_waited_so_long() -> None:
    found = with_unfinished(requests(["abort", "error", "abort"]), samples(*ages(100, 180)))
    assert found.label("outcome").is_value(UNFINISHED).all()
    assert latency_s(found, Metric.TTFT).tolist() == [60.0, 60.0, 2.0]
    assert latency_s(found, Metric.E2E).tolist() == [60.0, 60.0, 60.0]
    first = split_s(found, Metric.TTFT)
    assert first[:2, PART_INDEX["unsplit"]].tolist() == [60.0, 60.0]
    whole = split_s(found, Metric.E2E)
    assert whole[:2, PART_INDEX["unsplit"]].tolist() == [60.0, 60.0]
    assert whole[2, PART_INDEX["decode_unsplit"]] == pytest.approx(58.0)
    assert whole.sum(axis=1) == pytest.approx([60.0] * 3)


def test_requests_that_did_not_end_keep_the_labels_of_a_filter() -> None:
    """`streamed` is a number for the diagnosis, and a label only for this filter."""
    table = pa.table(
        {
            "received_unix_ns": [110 * S] * 2,
            "e2e_s": [60.0] * 2,
            "outcome": ["abort"] * 2,
            "replica": ["r0"] * 2,
            "streamed": [True, False],
        }
    )
    found = with_unfinished(requests_of(table, ["streamed"]), samples(*ages(100, 180)))
    assert found.label("outcome").is_value(UNFINISHED).all()
    assert found.matching({"streamed": "true"}).tolist() == [True, False]


def test_answered_and_refused_requests_are_as_they_were() -> None:
    before = requests(["stop", "length", "rejected"])
    assert with_unfinished(before, samples(*ages(100, 180))) is before


def test_requests_at_other_replicas_or_times_are_unchanged() -> None:
    before = requests(["abort", "abort"])
    assert with_unfinished(before, samples(*ages(300, 380))) is before
    assert with_unfinished(before, samples(*ages(100, 180, replica="r1"))) is before


def test_a_repetition_has_no_effect() -> None:
    once = with_unfinished(requests(["abort", "abort"]), samples(*ages(100, 180)))
    assert with_unfinished(once, samples(*ages(100, 180))) is once


def test_a_request_without_an_outcome_is_in_flight() -> None:
    given = requests(["abort", "abort"])
    unknown = replace(given, labels={"replica": given.label("replica")})
    found = with_unfinished(unknown, samples(*ages(100, 180)))
    assert latency_s(found, Metric.TTFT).tolist() == [60.0, 2.0]
