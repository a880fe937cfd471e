from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.evidence.stalls import stalled_while_queued_s
from diagnosis.inputs.arrow import samples_of
from diagnosis.inputs.requests import Requests
from diagnosis.one_request.delayers import delayers
from tests.diagnosis.making import S, labels

ENGINES = 8


def engines(stalled: int | None) -> pa.Table:
    """Return 20 s of samples of a replica's engines; one stalls in seconds 5 to 9."""
    rows = [
        {
            "at_unix_ns": second * S,
            "replica": "dp",
            "engine": number,
            "process": 1,
            "started_unix_ns": 0,
            "stall_s_total": float(np.clip(second - 5, 0, 4)) if number == stalled else 0.0,
        }
        for second in range(21)
        for number in range(ENGINES)
    ]
    return pa.Table.from_pylist(rows)


def waiting(served_by: list[float]) -> Requests:
    """Return requests that are received at 4 s, and wait for ten seconds each."""
    number = len(served_by)
    return Requests(
        np.full(number, 4 * S, dtype=np.int64),
        {"queue_s": np.full(number, 10.0), "engine": np.array(served_by)},
        {"replica": labels(["dp"] * number)},
    )


def case(requests: Requests, table: pa.Table) -> Any:
    return SimpleNamespace(servers=SimpleNamespace(engines=samples_of(table)), slow=requests)


def test_a_request_waits_for_the_stalls_of_its_own_engine() -> None:
    """If the engine is unknown, a stall of one of eight engines counts as one eighth."""
    found = stalled_while_queued_s(case(waiting([3.0, 5.0, np.nan]), engines(stalled=3)))
    assert found == pytest.approx([4.0, 0.0, 4.0 / ENGINES])


def test_stalls_of_all_engines_do_not_add_up() -> None:
    """Eight engines stall for four seconds each, but no request waits for 32 s."""
    table = pa.concat_tables(
        [
            engines(number).filter(pc.equal(engines(number)["engine"], number))
            for number in range(ENGINES)
        ]
    )
    found = stalled_while_queued_s(case(waiting([0.0, 7.0, np.nan]), table))
    assert found == pytest.approx([4.0, 4.0, 4.0])


def test_the_prefill_of_another_engine_delays_no_request() -> None:
    numbers = {
        "queue_s": np.zeros(3),
        "prefill_s": np.full(3, 1.0),
        "decode_s": np.full(3, 5.0),
        "prefill_others_prefill_s": np.array([0.5, 0.0, 0.0]),
        "prompt_tokens": np.full(3, 1_000.0),
        "cached_tokens": np.zeros(3),
        "engine": np.array([0.0, 0.0, 1.0]),
    }
    requests = Requests(np.zeros(3, np.int64), numbers, {"replica": labels(["dp"] * 3)})
    assert [(each.row, each.cost_s) for each in delayers(requests, 0)] == [(1, 0.5)]
