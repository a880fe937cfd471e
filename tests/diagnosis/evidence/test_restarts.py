from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diagnosis.evidence.restarts import around_starts
from diagnosis.inputs.requests import Requests
from telemetry.starts import EngineStart
from tests.diagnosis.making import S, labels


def requests(received_s: list[float], taken_s: list[float], engine: list[float]) -> Requests:
    return Requests(
        (np.array(received_s) * S).astype(np.int64),
        {"e2e_s": np.array(taken_s), "engine": np.array(engine)},
        {"replica": labels(["dp"] * len(engine))},
    )


def start(at_s: float, loading_s: float | None) -> EngineStart:
    return EngineStart(
        replica="dp",
        engine=3,
        process=1,
        at_unix_ns=int(at_s * S),
        config="c",
        arguments="{}",
        loading_s=loading_s,
    )


def case() -> Any:
    """Return a case without samples: each server counts as warm two minutes after its start."""
    no_samples = SimpleNamespace(replica=SimpleNamespace(values=()))
    return SimpleNamespace(
        servers=SimpleNamespace(engines=no_samples),
        question=SimpleNamespace(window=None),
        p99=lambda _: (None, None),
    )


def test_a_request_of_another_engine_is_affected_for_a_minute_after_the_start() -> None:
    found = around_starts(
        case(), [start(0, 60.0)], requests([59.0, 61.0, 119.0, 121.0], [1.0] * 4, [5, 5, 3, 3])
    )
    assert found.tolist() == [True, False, True, False]


@pytest.mark.parametrize(("loading_s", "first_s"), [(300.0, -300.0), (None, -120.0)])
def test_requests_in_progress_while_the_engine_loads_are_affected(
    loading_s: float | None, first_s: float
) -> None:
    """A request that ended before the engine began to load is not affected. Without a reported
    loading time, the engine is assumed to load for two minutes."""
    received_s = [first_s - 20.0, first_s - 20.0, first_s + 1.0, first_s - 20.0]
    found = around_starts(
        case(), [start(0, loading_s)], requests(received_s, [10.0, 30.0, 1.0, np.nan], [3.0] * 4)
    )
    assert found.tolist() == [False, True, True, True]
