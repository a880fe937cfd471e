from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import FloatArray, Requests
from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    WINDOW,
    asked,
    asking_for_adapters,
    evidence,
    first_cause,
    fleet,
    later,
    quiet,
    shares,
    summed,
    working,
)


def fetched(requests: Requests) -> Requests:
    """Give every prompt some external cached tokens, in both ranges."""
    outside = {"external_cached_tokens": np.full(len(requests), 128.0)}
    return replace(requests, numbers={**requests.numbers, **outside})


def connectors(fetching: float) -> Servers:
    now = {"fetching_kv": fetching, "kv_transfer_s_total": fetching}
    usual = {"fetching_kv": 0.0, "kv_transfer_s_total": 0.1, "kv_transfer_bytes_total": 1e6}
    return fleet(now, usual)


def test_a_wait_for_keys_and_values_is_a_transfer() -> None:
    first = first_cause(
        asked(later(fetched(quiet()), queue_held_s=0.8), servers=connectors(3.0)),
        "kv_transfer",
        0.9,
    )
    assert evidence(first, "requests fetching") == (0, 3)
    assert evidence(first, "seconds of transfer") == pytest.approx((0.1, 3.0))
    assert evidence(first, "bytes transferred/s") == pytest.approx((1e6, 1e6))
    assert any("link" in lever.action for lever in first.levers)


def test_a_held_request_without_fetched_tokens_is_no_transfer() -> None:
    assert not asked(later(quiet(), queue_held_s=0.8), servers=connectors(0.0)).causes


def test_a_wait_for_an_adapter_is_no_transfer() -> None:
    servers = fleet({"waiting_loras": 3}, {})
    assert list(shares(asked(asking_for_adapters(30), servers=servers))) == ["lora_swap"]


def test_a_request_with_an_adapter_may_wait_for_a_transfer() -> None:
    held = fetched(asking_for_adapters(3))
    servers = fleet({"fetching_kv": 3.0}, {"fetching_kv": 0.0, "waiting_loras": 0})
    found = shares(asked(held, servers=servers))
    assert list(found) == ["kv_transfer"]


def over_the_link(prompts: float, pace: float) -> Requests:
    """Return requests whose whole prompts are transferred.

    Args:
        prompts: the factor of the prompt tokens.
        pace: the factor of the time per token.
    """
    requests = working(quiet(), prompts=prompts)
    tokens = requests.numbers["prompt_tokens"]
    outside = {"external_cached_tokens": tokens, "queue_held_s": 1e-5 * tokens}
    outside_only = replace(requests, numbers={**requests.numbers, **outside})
    queue_s = np.random.default_rng(6).exponential(0.6, len(requests))
    behind_s = np.where(queue_s > 0.1, queue_s, 0.0)
    return later(outside_only, queue_held_s=1e-5 * tokens * pace + behind_s)


def test_longer_prompts_share_the_price_of_a_slower_link() -> None:
    found = shares(asked(over_the_link(4.0, 4.0), servers=connectors(3.0)))
    assert min(found["kv_transfer"], found["longer_prompts"]) > 0.3


def test_a_slower_link_alone_has_the_whole_share() -> None:
    found = shares(asked(over_the_link(1.0, 4.0), servers=connectors(3.0)))
    assert found["kv_transfer"] > 0.9


def test_the_time_of_a_grammar_makes_the_link_no_slower() -> None:
    """Rows contain the reason of a wait, so a wait for a grammar is not counted as transfer."""
    requests = over_the_link(4.0, 1.0)
    late = requests.received_unix_ns >= WINDOW.from_unix_ns
    loading_s = requests.numbers["queue_held_s"]
    grammar_s = np.where(late, 3.0, 0.0)
    held = {"queue_held_s": loading_s + grammar_s, "grammar_s": grammar_s}

    def transfer_share(kv_load_s: FloatArray) -> float:
        numbers = {**requests.numbers, **held, "kv_load_s": kv_load_s}
        known = summed(replace(requests, numbers=numbers))
        return shares(asked(known, servers=connectors(3.0))).get("kv_transfer", 0.0)

    assert transfer_share(loading_s) < 0.1
    assert transfer_share(np.full(len(requests), np.nan)) > 0.3
