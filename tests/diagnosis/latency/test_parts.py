import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.inputs.requests import Requests
from diagnosis.latency.parts import PART_INDEX, REASONING, gaps, latency_s, split_s
from diagnosis.question import Metric
from tests.diagnosis.making import labels, quiet


@pytest.mark.parametrize("metric", list(Metric))
@given(seed=st.integers(0, 1_000))
def test_the_parts_of_every_request_sum_to_its_latency(metric: Metric, seed: int) -> None:
    requests = quiet(50, seed)
    parts = split_s(requests, metric)
    assert np.allclose(parts.sum(axis=1), latency_s(requests, metric), rtol=1e-9, atol=1e-12)


def test_a_phase_without_a_ledger_has_no_parts() -> None:
    requests = Requests(
        np.zeros(1, dtype=np.int64),
        {
            "frontend_s": np.array([0.1]),
            "queue_s": np.array([0.2]),
            "prefill_s": np.array([0.3]),
            "ttft_s": np.array([0.7]),
        },
    )
    (parts,) = split_s(requests, Metric.TTFT)
    assert parts[PART_INDEX["queue_unsplit"]] == pytest.approx(0.2)
    assert parts[PART_INDEX["prefill_unsplit"]] == pytest.approx(0.3)
    assert parts[PART_INDEX["delivery"]] == pytest.approx(0.1)


def test_a_row_with_only_e2e_is_unsplit() -> None:
    requests = Requests(np.zeros(1, dtype=np.int64), {"e2e_s": np.array([2.0])})
    (parts,) = split_s(requests, Metric.E2E)
    assert parts[PART_INDEX["unsplit"]] == 2.0
    assert parts.sum() == 2.0


def test_an_aborted_response_does_not_count_as_fast() -> None:
    """Aborted requests have no E2E and no TPOT. They have a TTFT if a byte was sent."""
    requests = quiet(2)
    cut = Requests(
        requests.received_unix_ns,
        requests.numbers,
        {**requests.labels, "outcome": labels(["abort", "stop"])},
    )
    assert np.isnan(latency_s(cut, Metric.E2E)).tolist() == [True, False]
    assert np.isnan(latency_s(cut, Metric.TPOT)).tolist() == [True, False]
    assert np.isfinite(latency_s(cut, Metric.TTFT)).all()


def test_one_token_has_no_time_per_token() -> None:
    requests = quiet(1)
    single = Requests(
        requests.received_unix_ns, {**requests.numbers, "output_tokens": np.array([1.0])}
    )
    assert np.isnan(latency_s(single, Metric.TPOT)).all()


def test_an_answer_sent_whole_has_no_ttft_to_explain() -> None:
    """The first byte of the response is sent together with its last."""
    requests = quiet(1)
    whole = Requests(requests.received_unix_ns, {**requests.numbers, "streamed": np.zeros(1)})
    assert np.isnan(latency_s(whole, Metric.TTFT)).all()


@pytest.mark.parametrize("counted", [True, False])
def test_the_reasoning_is_divided_like_the_decode(counted: bool) -> None:
    """TTFT and the reasoning sum to the time to the first content."""
    requests = quiet(200)
    numbers = dict(requests.numbers)
    if not counted:
        numbers["reasoning_tokens"] = np.full(200, np.nan)
    requests = Requests(requests.received_unix_ns, numbers, requests.labels)
    parts, before = (split_s(requests, each) for each in (Metric.FIRST_CONTENT, Metric.TTFT))
    decode = [PART_INDEX[name] for name in REASONING]
    waited = numbers["first_content_s"] - numbers["ttft_s"]
    assert np.allclose(parts[:, decode].sum(axis=1), waited)
    rest = [place for place in range(parts.shape[1]) if place not in decode]
    assert np.allclose(parts[:, rest], before[:, rest])
    own, others = (PART_INDEX[f"decode_{name}"] for name in ("own", "others_decode"))
    assert np.allclose(
        parts[:, own] * numbers["decode_others_decode_s"],
        parts[:, others] * numbers["decode_own_s"],
    )
    assert np.allclose(
        gaps(requests, Metric.FIRST_CONTENT), quiet(200).numbers["reasoning_tokens"], atol=1e-6
    )


def test_reasoning_without_a_known_decode_is_not_divided() -> None:
    columns = {"queue_s": [0.2], "ttft_s": [0.7], "first_content_s": [3.7]}
    requests = Requests(
        np.zeros(1, dtype=np.int64), {name: np.array(each) for name, each in columns.items()}
    )
    (parts,) = split_s(requests, Metric.FIRST_CONTENT)
    assert parts[PART_INDEX["decode_unsplit"]] == pytest.approx(3.0)
    assert parts.sum() == pytest.approx(3.7)


def test_a_response_that_is_not_streamed_has_no_first_content() -> None:
    requests = quiet(2)
    numbers = {**requests.numbers, "streamed": np.array([0.0, 1.0])}
    whole = Requests(requests.received_unix_ns, numbers, requests.labels)
    assert np.isnan(latency_s(whole, Metric.FIRST_CONTENT)).tolist() == [True, False]
