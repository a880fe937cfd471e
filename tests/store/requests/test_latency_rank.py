from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from store.requests.latency_rank import latency_ranks
from telemetry.latency_rank import LatencyRank
from telemetry.requests import Outcome, RequestTimeline
from telemetry.window import Window

START_NS = 1_763_634_000_000_000_000
ALL = Window(START_NS, START_NS + 100 * 10**9)
Row = Callable[..., RequestTimeline]


def test_a_value_is_ranked_among_known_values(
    engine: Engine, write: Callable[..., None], request_row: Row
) -> None:
    """Only streamed responses have a rank by TTFT. Equal values are neither lower nor higher."""
    rows = [
        request_row(
            number,
            model="m",
            ttft_s=0.1 * number,
            e2e_s=1.0 * number,
            streamed=True,
            outcome=Outcome.STOP,
        )
        for number in range(1, 11)
    ]
    rows += [
        request_row(11, model="m", ttft_s=9.0, e2e_s=9.5, streamed=False, outcome=Outcome.STOP),
        request_row(12, model="m", ttft_s=None, e2e_s=0.5, streamed=True, outcome=Outcome.ABORT),
        request_row(13, model="n", ttft_s=0.01, e2e_s=0.1, streamed=True, outcome=Outcome.STOP),
    ]
    write(*rows)
    found = latency_ranks(engine, ALL, {"model": "m"}, {"ttft_s": 0.1 * 8, "e2e_s": 8.0})
    assert found == {"ttft_s": LatencyRank(10, 7, 2), "e2e_s": LatencyRank(11, 7, 3)}
    assert latency_ranks(engine, ALL, {"model": "m"}, {}) == {}
    without = latency_ranks(engine, ALL, {"model": "x"}, {"e2e_s": 1.0})
    assert without == {"e2e_s": LatencyRank(0, 0, 0)}


def test_another_latency_cannot_be_ranked(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"cannot rank 'queue_s'; allowed: ttft_s, e2e_s"):
        latency_ranks(engine, ALL, {}, {"queue_s": 1.0})
