from collections.abc import Mapping

import numpy as np
import pytest

from diagnosis.inputs.requests import LabelColumn, Requests
from diagnosis.one_request.account import account

UNKNOWN = float("nan")


def requests(columns: Mapping[str, list[float]], outcome: str = "stop") -> Requests:
    """Return requests as columns, received half a second apart."""
    number = len(next(iter(columns.values())))
    return Requests(
        np.arange(number, dtype=np.int64) * 500_000_000,
        {name: np.array(values, dtype=np.float64) for name, values in columns.items()},
        {
            "outcome": LabelColumn(np.zeros(number, dtype=np.int32), (outcome,)),
            "replica": LabelColumn(np.zeros(number, dtype=np.int32), ("r1",)),
        },
    )


PARTS: Mapping[str, list[float]] = {
    "frontend_s": [0.1],
    "queue_s": [0.4],
    "prefill_s": [1.0],
    "prefill_own_s": [0.3],
    "prefill_others_prefill_s": [0.7],
    "prefill_others_decode_s": [0.0],
    "prefill_preempted_s": [0.0],
    "prefill_stall_s": [0.0],
    "decode_s": [0.5],
    "delivery_s": [0.01],
    "e2e_s": [2.01],
}


@pytest.mark.parametrize("outcome", ["stop", "abort", "error"])
def test_the_parts_sum_to_the_whole_for_every_outcome(outcome: str) -> None:
    parts = account(requests(PARTS, outcome), 0).parts_s
    assert sum(parts.values()) == pytest.approx(2.01)
    assert parts == pytest.approx(
        {
            "frontend": 0.1,
            "queue_unsplit": 0.4,
            "prefill_own": 0.3,
            "prefill_others_prefill": 0.7,
            "decode_unsplit": 0.5,
            "delivery": 0.01,
        }
    )


def test_time_without_a_recorded_delivery_is_not_called_delivery() -> None:
    left = {**PARTS, "prefill_s": [UNKNOWN], "decode_s": [UNKNOWN], "delivery_s": [UNKNOWN]}
    left |= {name: [UNKNOWN] for name in PARTS if name.startswith("prefill_")}
    parts = account(requests(left, "abort"), 0).parts_s
    assert parts == pytest.approx({"frontend": 0.1, "queue_unsplit": 0.4, "unsplit": 1.51})
    parts = account(requests({**PARTS, "e2e_s": [3.01]}), 0).parts_s
    assert parts["delivery"] == pytest.approx(0.01)
    assert parts["unsplit"] == pytest.approx(1.0)


def test_delayers_are_indices_of_the_given_requests() -> None:
    two = {name: [values[0], values[0]] for name, values in PARTS.items()}
    found = account(requests({**two, "prompt_tokens": [100.0, 9000.0]}), 0)
    assert [each.row for each in found.delayed_by] == [1]
    assert found.delayed_by[0].cost_s == pytest.approx(0.7)
    alone = account(requests({**PARTS, "prompt_tokens": [100.0]}), 0)
    assert alone.delayed_by == []


def test_delays_by_tenant_sum_to_the_rows_value() -> None:
    """Tenants share the delay by prefills in proportion to their prompt tokens.

    They share the delay by decodes in proportion to the output tokens computed at the same time. A
    request on another replica causes no delay.
    """
    parts = {name: [values[0]] * 4 for name, values in PARTS.items()}
    parts |= {
        "prefill_others_prefill_s": [0.7] * 4,
        "prefill_own_s": [0.3] * 4,
        "decode_own_s": [0.2] * 4,
        "decode_others_prefill_s": [0.0] * 4,
        "decode_others_decode_s": [0.3] * 4,
        "decode_preempted_s": [0.0] * 4,
        "decode_stall_s": [0.0] * 4,
        "prompt_tokens": [100.0, 600.0, 100.0, 9_000.0],
        "output_tokens": [50.0, 10.0, 30.0, 5_000.0],
    }
    made = requests(parts)
    together = Requests(
        np.zeros(4, dtype=np.int64),
        made.numbers,
        {
            **made.labels,
            "replica": LabelColumn(np.array([0, 0, 0, 1], dtype=np.int32), ("r1", "r2")),
            "tenant": LabelColumn(np.array([0, 1, -1, 1], dtype=np.int32), ("blue", "acme")),
        },
    )
    acme, unknown = account(together, 0).by_tenant
    assert (acme.tenant, acme.requests) == ("acme", 1)
    assert (acme.prefill_s, acme.decode_s) == pytest.approx((0.6, 0.075))
    assert (unknown.tenant, unknown.requests) == (None, 1)
    assert (unknown.prefill_s, unknown.decode_s) == pytest.approx((0.1, 0.225))
    assert acme.cost_s + unknown.cost_s == pytest.approx(0.7 + 0.3)


HELD: Mapping[str, list[float]] = {
    **PARTS,
    "queue_seats_s": [0.1],
    "queue_kv_s": [0.0],
    "queue_budget_s": [0.0],
    "queue_held_s": [0.3],
    "queue_step_s": [0.0],
}


def test_the_reasons_of_a_held_request_are_parts_and_still_sum() -> None:
    reasons = {"kv_load_s": [0.0], "grammar_s": [0.05], "adapter_wait_s": [0.2]}
    found = account(requests({**HELD, **reasons}), 0).parts_s
    assert found["queue_grammar"] == pytest.approx(0.05)
    assert found["queue_adapter"] == pytest.approx(0.2)
    assert found["queue_held"] == pytest.approx(0.05)
    assert "queue_kv_load" not in found
    assert sum(found.values()) == pytest.approx(2.01)


def test_without_reasons_the_held_time_is_one_part() -> None:
    found = account(requests({**HELD, "grammar_s": [UNKNOWN]}), 0).parts_s
    assert found["queue_held"] == pytest.approx(0.3)
    assert sum(found.values()) == pytest.approx(2.01)


def test_reasons_that_exceed_the_held_time_are_cut() -> None:
    found = account(requests({**HELD, "kv_load_s": [0.2], "grammar_s": [0.2]}), 0).parts_s
    assert found["queue_grammar"] == pytest.approx(0.1)
    assert sum(found.values()) == pytest.approx(2.01)
