from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from analysis.starts import (
    LATER,
    MAX_LISTED,
    StartsQuestion,
    answer_starts,
    slow_first_requests,
)
from store.writer import Writer
from telemetry.requests import RequestTimeline
from telemetry.window import Window
from tests.cold_starts import START_NS, cold_start

S = 10**9
READY_NS = START_NS + 56 * S
WINDOW = Window(START_NS, START_NS + 3_600 * S)


@pytest.fixture
def served(engine: Engine, request_row: Callable[..., RequestTimeline]) -> Callable[..., None]:
    """Return a function that stores a start and requests after it.

    The first request's own prefill takes `first_s` seconds.
    """

    def put(first_s: float, number: int = 30, **about: Any) -> None:
        plain: dict[str, Any] = {
            **dict.fromkeys(("prefill_others_decode_s", "prefill_preempted_s"), 0.0),
            "prefill_others_prefill_s": 0.2,
            "prefill_stall_s": 0.0,
            "cached_tokens": 0,
            "prompt_tokens": 400,
            "replica": "a",
            "engine": 0,
        }
        rows = []
        for each in range(number):
            own_s = first_s if each == 0 else 0.05 + 0.001 * (each % 5)
            timed = {
                "received_unix_ns": READY_NS + (each + 1) * S,
                "prefill_own_s": own_s,
                "prefill_s": own_s + 0.2,
            }
            rows.append(request_row(each, **{**plain, **timed, **about}))
        with Writer(engine) as writer:
            writer.submit(rows, [], cold_starts=[cold_start()]).result(10)

    return put


def test_a_start_has_its_parts_and_the_slow_first_request(
    engine: Engine, served: Callable[..., None]
) -> None:
    served(3.0)
    found = answer_starts(engine, StartsQuestion(WINDOW))
    (start,) = found.starts
    assert sum(start.cold_start.parts_s.values()) == start.cold_start.length_s == 56.0
    assert start.advice == (
        "the weights took longest (20 s). Try: stream the weights, or keep them on a local disk,"
        " --load-format runai_streamer."
    )
    (first,) = start.first_requests
    assert (first.from_tokens, first.to_tokens, first.later) == (256, 512, 29)
    assert first.prefill_s == pytest.approx(3.0)
    assert first.usual_s == pytest.approx(0.052)
    assert first.excess_s == pytest.approx(2.948)
    assert start.compared == 1


@pytest.mark.parametrize(
    ("first_s", "number", "about"),
    [(0.05, 30, {}), (3.0, LATER, {}), (3.0, 30, {"engine": 1}), (3.0, 30, {"replica": "b"})],
    ids=["usual", "too few", "another engine", "another replica"],
)
def test_no_first_request_is_slow_without_evidence(
    first_s: float,
    number: int,
    about: Any,
    engine: Engine,
    served: Callable[..., None],
) -> None:
    served(first_s, number, **about)
    (start,) = answer_starts(engine, StartsQuestion(WINDOW)).starts
    assert start.first_requests == []


def test_the_requests_after_a_start_end_at_the_next_start_of_the_engine(
    engine: Engine, served: Callable[..., None], request_row: Callable[..., RequestTimeline]
) -> None:
    """The first request after the next start is slower than the first request of this start."""
    served(3.0)
    after_s = 60
    again = cold_start(number=56 + after_s, reached="weights", failure="OutOfMemoryError")
    later = request_row(
        99,
        received_unix_ns=again.at_unix_ns + S,
        replica="a",
        engine=0,
        prompt_tokens=400,
        cached_tokens=0,
        prefill_s=9.0,
        prefill_own_s=9.0,
        prefill_others_prefill_s=0.0,
        prefill_others_decode_s=0.0,
        prefill_preempted_s=0.0,
        prefill_stall_s=0.0,
    )
    with Writer(engine) as writer:
        writer.submit([later], [], cold_starts=[again]).result(10)
    first, failed = answer_starts(engine, StartsQuestion(WINDOW)).starts
    assert [each.later for each in first.first_requests] == [29]
    assert failed.failed is not None


def test_the_start_of_another_engine_does_not_end_the_requests_of_a_start(
    engine: Engine, served: Callable[..., None]
) -> None:
    served(3.0)
    others = [cold_start(58, engine=1), cold_start(59, replica="b")]
    with Writer(engine) as writer:
        writer.submit([], [], cold_starts=others).result(10)
    first = answer_starts(engine, StartsQuestion(WINDOW)).starts[0]
    assert [each.later for each in first.first_requests] == [29]


def test_a_start_without_requests_is_listed(engine: Engine) -> None:
    with Writer(engine) as writer:
        writer.submit([], [], cold_starts=[cold_start(parts={})]).result(10)
    (start,) = answer_starts(engine, StartsQuestion(WINDOW)).starts
    assert start.advice is None
    assert (start.first_requests, start.compared) == ([], 0)


def test_labels_select_starts_and_the_newest_are_listed(engine: Engine) -> None:
    with Writer(engine) as writer:
        starts = [cold_start(n, replica="ab"[n % 2]) for n in range(2 * MAX_LISTED + 10)]
        writer.submit([], [], cold_starts=starts).result(10)
    found = answer_starts(engine, StartsQuestion(WINDOW, {"replica": "b"}))
    assert found.number == MAX_LISTED + 5
    assert [each.cold_start for each in found.starts] == starts[-2 * MAX_LISTED + 1 :: 2]
    assert answer_starts(engine, StartsQuestion(WINDOW, {"model": "other"})).number == 0


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 100.0)), max_size=200),
)
def test_a_slow_first_request_is_slower_than_all_later_ones(
    requests: list[tuple[int, float]],
) -> None:
    shapes = np.array([shape for shape, _ in requests], dtype=np.int64)
    prefill_s = np.array([seconds for _, seconds in requests], dtype=np.float64)
    found, compared = slow_first_requests(shapes, prefill_s)
    assert len(found) <= compared <= 4
    for each in found:
        mine = prefill_s[2**shapes == each.from_tokens]
        assert each.later == mine.size - 1 >= LATER
        assert each.prefill_s == mine[0] > mine[1:].max()
        assert each.excess_s > 0


def test_equal_requests_are_slow_by_chance_in_one_of_twenty_at_most() -> None:
    """No server has a slow first request, so each finding would be wrong."""
    chance = np.random.default_rng(20260903)
    alarms = [
        bool(slow_first_requests(np.zeros(n, dtype=np.int64), chance.exponential(size=n))[0])
        for n in chance.integers(LATER + 1, 200, size=4_000)
    ]
    assert np.mean(alarms) < 0.05
