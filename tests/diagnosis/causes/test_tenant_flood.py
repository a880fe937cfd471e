import pytest

from diagnosis.requests import Requests
from tests.diagnosis.making import asked, busier, evidence, flags, later, quiet, shares, working


def queued(requests: Requests) -> Requests:
    """Everybody waits for a place."""
    return later(requests, queue_seats_s=1.0)


def test_one_tenant_of_five_times_its_traffic_floods_the_others() -> None:
    """It is named, with its rate and theirs."""
    first = asked(queued(busier(quiet(), 5, tenant="acme"))).causes[0]
    assert first.id == "tenant_flood"
    assert first.share > 0.9
    assert first.where == {"tenant": "acme"}
    before, now = evidence(first, "requests/s of acme")
    assert now == pytest.approx(5 * (before or 0), rel=0.15)
    before, now = evidence(first, "requests/s of the other tenants")
    assert now == pytest.approx(before, rel=0.15)
    assert "--scheduling-policy priority" in flags(first)
    assert any("acme" in lever.action for lever in first.levers)


def test_all_tenants_that_grow_alike_flood_nobody() -> None:
    """That is a load."""
    found = shares(asked(queued(busier(quiet(), 2))))
    assert next(iter(found)) == "load_exceeds_capacity"
    assert "tenant_flood" not in found


def test_a_tenant_that_nobody_waits_behind_floods_nobody() -> None:
    """More of its requests, longer prompts of all, and no queue."""
    found = shares(asked(working(busier(quiet(), 5, tenant="acme"), prompts=4.0)))
    assert "tenant_flood" not in found


def test_others_may_wait_in_the_front_end() -> None:
    """The engine has nothing to wait for: the API server takes one after the other."""
    requests = quiet()
    a_token_s = 2e-6 * requests.numbers["prompt_tokens"]
    requests.numbers["frontend_s"][:] = a_token_s
    late = later(busier(requests, 5, tenant="acme"), frontend_s=lambda old: 2.0 * old + 1.0)
    found = shares(asked(late))
    assert "load_exceeds_capacity" not in found
    assert found["tenant_flood"] > 0.05


def test_a_flood_amid_a_load_shares_with_it() -> None:
    """All tenants send twice as much, and one of them five times that."""
    found = shares(asked(queued(busier(busier(quiet(), 2), 5, tenant="acme"))))
    assert set(found) == {"tenant_flood", "load_exceeds_capacity"}
    assert found["tenant_flood"] > found["load_exceeds_capacity"] > 0.1
