from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    REPLICAS,
    asked,
    asking_for_adapters,
    evidence,
    later,
    quiet,
    shares,
    told_each_second,
    working,
)


def fetched(requests: Requests) -> Requests:
    """Every prompt has some of its keys and values from outside, before and now."""
    outside = {"external_cached_tokens": np.full(len(requests), 128.0)}
    return replace(requests, numbers={**requests.numbers, **outside})


def connectors(fetching: float) -> Servers:
    """So many requests wait for theirs."""
    now = {"fetching_kv": fetching, "kv_transfer_s_total": fetching}
    usual = {"fetching_kv": 0.0, "kv_transfer_s_total": 0.1, "kv_transfer_bytes_total": 1e6}
    return servers_of(told_each_second(dict.fromkeys(REPLICAS, now), usual))


def test_who_waits_for_keys_and_values_waits_for_their_transfer() -> None:
    """How many fetch, for how long and how much is told."""
    first = asked(later(fetched(quiet()), queue_held_s=0.8), servers=connectors(3.0)).causes[0]
    assert first.id == "kv_transfer"
    assert first.share > 0.9
    assert evidence(first, "requests fetching") == (0, 3)
    assert evidence(first, "seconds of transfer") == pytest.approx((0.1, 3.0))
    assert evidence(first, "bytes transferred/s") == pytest.approx((1e6, 1e6))
    assert any("link" in lever.action for lever in first.levers)


def test_who_was_held_back_and_fetched_nothing_waited_for_something_else() -> None:
    """The batch had room, and nothing was on its way."""
    assert not asked(later(quiet(), queue_held_s=0.8), servers=connectors(0.0)).causes


def test_who_waits_for_an_adapter_does_not_wait_for_a_transfer() -> None:
    """Both are held back; adapters are loaded, nothing is fetched."""
    engines = told_each_second({each: {"waiting_loras": 3} for each in REPLICAS}, {})
    assert list(shares(asked(asking_for_adapters(30), servers=servers_of(engines)))) == [
        "lora_swap"
    ]


def test_who_has_an_adapter_may_wait_for_a_transfer() -> None:
    """As few adapters as ever, none of them waited for; keys and values are."""
    held = fetched(asking_for_adapters(3))
    engines = told_each_second(
        {each: {"fetching_kv": 3.0} for each in REPLICAS}, {"fetching_kv": 0.0, "waiting_loras": 0}
    )
    found = shares(asked(held, servers=servers_of(engines)))
    assert list(found) == ["kv_transfer"]


def over_the_link(prompts: float, pace: float) -> Requests:
    """All of a prompt comes over it: so many times the tokens, at so many times the price."""
    requests = working(quiet(), prompts=prompts)
    tokens = requests.numbers["prompt_tokens"]
    outside = {"external_cached_tokens": tokens, "queue_held_s": 1e-5 * tokens}
    told = replace(requests, numbers={**requests.numbers, **outside})
    queue_s = np.random.default_rng(6).exponential(0.6, len(requests))
    behind_s = np.where(queue_s > 0.1, queue_s, 0.0)
    return later(told, queue_held_s=1e-5 * tokens * pace + behind_s)


def test_longer_prompts_share_the_price_of_a_slower_link() -> None:
    """Four times the tokens, each of which takes four times as long."""
    found = shares(asked(over_the_link(4.0, 4.0), servers=connectors(3.0)))
    assert min(found["kv_transfer"], found["longer_prompts"]) > 0.3


def test_a_slower_link_alone_has_all_of_it() -> None:
    """As many tokens as ever."""
    found = shares(asked(over_the_link(1.0, 4.0), servers=connectors(3.0)))
    assert found["kv_transfer"] > 0.9
