from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.littles_law import contradictions
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Samples
from diagnosis.question import Span
from tests.diagnosis.making import S, labels

WINDOW = Span(0, 100 * S)


def _samples(waiting: float) -> Samples:
    at = np.arange(100, dtype=np.int64) * S
    return Samples(
        at, labels(["r0"] * 100), np.zeros(100, dtype=np.int64), {"waiting": np.full(100, waiting)}
    )


def _requests(number: int) -> Requests:
    return Requests(
        np.linspace(0, 99 * S, number).astype(np.int64),
        {"queue_s": np.full(number, 2.0)},
        {"replica": labels(["r0"] * number)},
    )


def test_a_queue_that_adds_up_raises_no_doubt() -> None:
    """Four requests per second that wait for two seconds each are eight waiting requests."""
    assert not contradictions(_requests(400), _samples(8.0), WINDOW)


def test_a_restart_begins_a_new_series_of_the_same_queue() -> None:
    samples, after = _samples(8.0), np.arange(100) >= 50
    assert not contradictions(
        _requests(400), replace(samples, series=after.astype(np.int64)), WINDOW
    )


def test_the_queues_of_two_engines_are_added() -> None:
    at = np.repeat(np.arange(100, dtype=np.int64) * S, 2)
    series = np.tile(np.arange(2, dtype=np.int64), 100)
    engines = Samples(at, labels(["r0"] * 200), series, {"waiting": np.full(200, 4.0)})
    assert not contradictions(_requests(400), engines, WINDOW)


def test_only_the_time_with_samples_is_compared() -> None:
    """A replica that starts in the middle of the window has neither requests nor samples before."""
    samples, requests = _samples(8.0), _requests(400)
    late = samples.at_unix_ns >= 50 * S
    started = Samples(
        samples.at_unix_ns[late],
        labels(["r0"] * int(late.sum())),
        samples.series[late],
        {"waiting": samples.number("waiting")[late]},
    )
    assert not contradictions(requests.rows(requests.received_unix_ns >= 48 * S), started, WINDOW)


@pytest.mark.parametrize("number", [100, 800])
def test_a_queue_that_does_not_add_up_is_reported_with_its_replica(number: int) -> None:
    (doubt,) = contradictions(_requests(number), _samples(8.0), WINDOW)
    assert doubt.startswith("r0 reports 8.0 waiting requests")


def test_a_queue_below_one_request_is_not_checked() -> None:
    """One sample per second is too coarse for a queue below one request."""
    assert not contradictions(_requests(4), _samples(0.5), WINDOW)
