from dataclasses import replace

import numpy as np
import pytest

from diagnosis.inputs.requests import Requests
from diagnosis.question import Metric
from tests.diagnosis.making import (
    WINDOW,
    S,
    asked,
    busier,
    evidence,
    first_cause,
    flags,
    fleet,
    later,
    quiet,
    rolled_out,
    shares,
    working,
)


def queued(requests: Requests) -> Requests:
    return later(requests, queue_seats_s=1.0)


def test_one_tenant_of_five_times_its_traffic_floods_the_others() -> None:
    first = first_cause(asked(queued(busier(quiet(), 5, tenant="acme"))), "tenant_flood", 0.9)
    assert first.where == {"tenant": "acme"}
    before, now = evidence(first, "requests/s of acme")
    assert now == pytest.approx(5 * (before or 0), rel=0.15)
    before, now = evidence(first, "requests/s of the other tenants")
    assert now == pytest.approx(before, rel=0.15)
    assert "--scheduling-policy priority" in flags(first)
    assert any("acme" in lever.action for lever in first.levers)


def test_a_flood_after_a_rollout_is_a_flood() -> None:
    """The window has no replica in common with the baseline."""
    flooded = rolled_out(queued(busier(quiet(), 5, tenant="acme")))
    assert first_cause(asked(flooded), "tenant_flood", 0.9).where == {"tenant": "acme"}


@pytest.mark.parametrize(
    ("metric", "cause"),
    [(Metric.TTFT, "load_exceeds_capacity"), (Metric.TPOT, "decode_batch_growth")],
)
def test_no_tenant_grew_if_the_baseline_has_no_tenants(metric: Metric, cause: str) -> None:
    """The baseline is older than the option that adds the tenant to each request."""
    busy = queued(busier(quiet(), 5, tenant="acme"))
    busy = later(busy, decode_others_decode_s=lambda old: old * 5)
    tenant = busy.label("tenant")
    late = busy.received_unix_ns >= WINDOW.from_unix_ns
    known = replace(tenant, codes=np.where(late, tenant.codes, np.int32(-1)))
    unnamed = replace(busy, labels={**busy.labels, "tenant": known})
    assert first_cause(asked(unnamed, metric), cause, 0.9).where == {}


def test_equal_growth_of_all_tenants_is_not_a_flood() -> None:
    found = shares(asked(queued(busier(quiet(), 2))))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "tenant_flood" not in found


def test_a_small_growth_of_the_others_beside_a_flood_is_no_higher_load() -> None:
    flooded = busier(quiet(), 12, tenant="acme")
    rows = np.arange(len(flooded))
    late = flooded.received_unix_ns >= WINDOW.from_unix_ns
    others = np.flatnonzero(late & ~flooded.label("tenant").is_value("acme"))[::20]
    found = shares(asked(queued(flooded.rows(np.sort(np.concatenate([rows, others]))))))
    assert list(found) == ["tenant_flood"]


def test_the_tenant_that_grew_most_by_chance_is_not_a_flood() -> None:
    """One tenant sends twice as many requests as before, and the others 1.6 times as many."""
    grown = busier(quiet(), 2)
    acme = grown.label("tenant").is_value("acme")
    left_out = (grown.received_unix_ns >= WINDOW.from_unix_ns) & ~acme
    left_out &= np.random.default_rng(3).random(len(grown)) < 0.2
    found = shares(asked(queued(grown.rows(~left_out))))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "tenant_flood" not in found


def test_a_tenant_that_causes_no_queue_is_no_flood() -> None:
    """One tenant sends more requests and all prompts are longer, but no request queues."""
    found = shares(asked(working(busier(quiet(), 5, tenant="acme"), prompts=4.0)))
    assert "tenant_flood" not in found


def test_others_may_wait_in_the_front_end() -> None:
    requests = quiet()
    a_token_s = 2e-6 * requests.numbers["prompt_tokens"]
    requests = replace(requests, numbers={**requests.numbers, "frontend_s": a_token_s})
    late = later(busier(requests, 5, tenant="acme"), frontend_s=lambda old: 2.0 * old + 1.0)
    found = shares(asked(late))
    assert "load_exceeds_capacity" not in found
    assert found["tenant_flood"] > 0.05


def test_a_flood_and_a_higher_load_share_the_growth() -> None:
    found = shares(asked(queued(busier(busier(quiet(), 2), 5, tenant="acme"))))
    assert set(found) == {"tenant_flood", "load_exceeds_capacity"}
    assert found["tenant_flood"] > found["load_exceeds_capacity"] > 0.1


def test_a_request_after_a_flood_may_wait_because_of_it() -> None:
    """The slowest requests arrive after the flood, and wait for its requests."""
    requests = quiet(12_000)
    at_s = requests.received_unix_ns / S
    acme = requests.label("tenant").is_value("acme")
    again = np.repeat(np.flatnonzero(acme & (at_s >= 1_000) & (at_s < 1_060)), 15)
    more = requests.rows(np.sort(np.concatenate([np.arange(len(requests)), again])))
    behind = more.received_unix_ns / S - 1_000
    waits_s = np.where((behind >= 0) & (behind < 180), np.minimum(behind, 180 - behind), 0.0)
    slowest = np.where((behind >= 60) & (behind < 110), waits_s + 60.0, waits_s)
    first = first_cause(asked(later(more, queue_seats_s=slowest)), "tenant_flood")
    assert first.where == {"tenant": "acme"}


def test_more_requests_of_another_kind_are_no_flood() -> None:
    requests = busier(quiet(), 5, tenant="acme")
    added = requests.label("tenant").is_value("acme")
    added &= np.random.default_rng(3).random(len(requests)) < 0.8
    longer = later(queued(requests), output_tokens=lambda old: np.where(added, 10 * old, old))
    assert "tenant_flood" not in shares(asked(longer))


def test_only_the_excess_over_the_growth_of_all_tenants_is_a_flood() -> None:
    among = busier(busier(quiet(), 4), 3, tenant="acme")
    found = shares(asked(queued(among)))
    assert set(found) == {"tenant_flood", "load_exceeds_capacity"}
    assert min(found.values()) > 0.25


def test_a_flood_is_no_cause_of_slower_tokens() -> None:
    requests = busier(quiet(), 5, tenant="acme")
    each_s = 0.05 * (requests.numbers["output_tokens"] - 1)
    slower = later(requests, queue_seats_s=1.0, decode_others_decode_s=lambda old: old + each_s)
    servers = fleet({"waiting": 9}, {"waiting": 0})
    found = shares(asked(slower, Metric.TPOT, servers))
    assert next(iter(found)) == "decode_batch_growth"
    assert "tenant_flood" not in found


def test_a_flood_may_come_with_a_few_huge_prompts() -> None:
    """The tenant's median prompt is unchanged."""
    requests = busier(quiet(), 5, tenant="acme")
    acme = requests.label("tenant").is_value("acme")
    huge = acme & (np.random.default_rng(2).random(len(requests)) < 0.06)
    mixed = later(queued(requests), prompt_tokens=lambda old: np.where(huge, 30_000.0, old))
    assert "tenant_flood" in shares(asked(mixed))
