from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from tests.diagnosis.making import (
    asked,
    asking_for_adapters,
    evidence,
    first_cause,
    fleet,
    later,
    quiet,
    shares,
)


def held(requests: Requests, held_s: float, **reasons: float) -> Requests:
    """Make the scheduler hold back the window's requests, by reason and seconds."""
    none = {name: np.zeros(len(requests)) for name in ("kv_load_s", "grammar_s", "adapter_wait_s")}
    known = replace(requests, numbers={**requests.numbers, **none})
    values: dict[str, Any] = {"queue_held_s": held_s, **reasons}
    return later(known, **values)


def test_a_wait_for_new_schemas_is_a_compilation() -> None:
    first = first_cause(asked(held(quiet(), 0.8, grammar_s=0.8)), "grammar_compile", 0.9)
    assert evidence(first, "seconds of waiting for a grammar") == pytest.approx((0, 0.8))
    assert evidence(first, "share of all requests") == (0, 1)
    assert any("schema" in lever.action for lever in first.levers)


def test_a_wait_without_a_reported_grammar_is_no_compilation() -> None:
    assert not asked(later(quiet(), queue_held_s=0.8)).causes
    assert not asked(held(quiet(), 0.8)).causes


def test_reported_reasons_divide_the_held_time() -> None:
    """Requests need an adapter, but their wait for a grammar is three times as long."""
    requests = held(asking_for_adapters(3), 0.8, grammar_s=0.6, adapter_wait_s=0.2)
    servers = fleet({"waiting_loras": 3, "deferred": 6}, {"waiting_loras": 0.0, "deferred": 0})
    found = shares(asked(requests, servers=servers))
    assert list(found) == ["grammar_compile", "lora_swap"]
    assert found["grammar_compile"] > 2 * found["lora_swap"] > 0.2


def test_a_wait_for_a_grammar_is_no_transfer() -> None:
    """The engine fetches more KV cache, but these requests waited for a grammar."""
    servers = fleet({"fetching_kv": 3.0}, {"fetching_kv": 0.0})
    found = shares(asked(held(quiet(), 0.8, grammar_s=0.8), servers=servers))
    assert list(found) == ["grammar_compile"]
