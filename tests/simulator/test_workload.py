from collections import Counter
from itertools import islice

import pytest

from simulator.workload import TENANTS, Tenant, Workload


def test_the_same_seed_gives_the_same_requests() -> None:
    workload = Workload(rate_per_s=5.0)
    one, same, other = (list(islice(workload.arrivals(seed), 500)) for seed in ("a", "a", "b"))
    assert one == same
    assert one != other


def test_the_traffic_has_the_requested_rate() -> None:
    requests = list(Workload(rate_per_s=10.0).arrivals("mix", to_s=2000.0))
    n = len(requests)
    assert n == pytest.approx(20_000, rel=0.03)
    assert [r.at_s for r in requests] == sorted(r.at_s for r in requests)
    tenants = Counter(request.tenant for request in requests)
    total_weight = sum(tenant.weight for tenant in TENANTS)
    for tenant in TENANTS:
        assert tenants[tenant.name] / n == pytest.approx(tenant.weight / total_weight, rel=0.1)
    left = [r for r in requests if r.leaves_after_tokens is not None]
    assert len(left) / n == pytest.approx(0.01, rel=0.3)
    assert all(1 <= (r.leaves_after_tokens or 0) <= r.output_tokens for r in left)
    assert sum(r.malformed for r in requests) / n == pytest.approx(0.003, rel=0.5)
    assert sum(r.streamed for r in requests) / n > 0.9
    assert {r.chat for r in requests} == {True, False}


def test_a_prefix_is_shorter_than_its_prompt() -> None:
    requests = islice(Workload(rate_per_s=10.0).arrivals("prefix"), 5000)
    shared = [r for r in requests if r.prefix is not None]
    assert shared
    assert all(r.prefix is not None and r.prefix.tokens < r.prompt_tokens for r in shared)


def test_an_invalid_rate_is_refused() -> None:
    for rate_per_s in (0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"rate_per_s: .*allowed: more than 0"):
            Workload(rate_per_s=rate_per_s)


def test_a_tenant_without_weight_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tenants: .*allowed: one or more"):
        Workload(rate_per_s=1.0, tenants=(Tenant("nobody", 0.0),))
