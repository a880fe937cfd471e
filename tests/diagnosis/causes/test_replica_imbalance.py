from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.arrow import servers_of
from diagnosis.inputs.requests import Requests
from diagnosis.inputs.servers import Servers
from tests.diagnosis.making import (
    WINDOW,
    asked,
    at_replica,
    busier,
    evidence,
    first_cause,
    labels,
    later,
    quiet,
    sampled_each_second,
    shares,
)


def skewed(requests: Requests, share: float) -> Requests:
    moved = np.random.default_rng(7).random(len(requests)) < share
    moved &= requests.received_unix_ns >= WINDOW.from_unix_ns
    names = np.where(moved | at_replica(requests, "r0"), "r0", "r1").tolist()
    return replace(requests, labels={**requests.labels, "replica": labels(names)})


def waiting_at_r0(requests: Requests) -> Requests:
    return later(requests, queue_seats_s=np.where(at_replica(requests, "r0"), 1.0, 0.0))


def queues() -> Servers:
    return servers_of(sampled_each_second({"r0": {"waiting": 30}}, {"waiting": 0}))


def test_a_replica_that_gets_more_than_its_share_is_out_of_balance() -> None:
    first = first_cause(
        asked(waiting_at_r0(skewed(quiet(), 0.8)), servers=queues()), "replica_imbalance", 0.9
    )
    assert first.where == {"replica": "r0"}
    assert evidence(first, "share of the traffic") == pytest.approx((0.5, 0.9), abs=0.03)
    assert evidence(first, "requests waiting at the slow servers") == (0, 30)
    assert any("outstanding" in lever.action for lever in first.levers)


def test_a_load_that_all_replicas_share_is_no_imbalance() -> None:
    found = shares(asked(later(busier(quiet(), 2), queue_seats_s=1.0)))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "replica_imbalance" not in found


def test_a_replica_that_waits_with_its_fair_share_is_no_imbalance() -> None:
    assert "replica_imbalance" not in shares(asked(waiting_at_r0(quiet()), servers=queues()))
