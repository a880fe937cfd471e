"""Long requests that were added, in contrast to requests that became longer."""

from math import inf, log2
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from diagnosis.evidence import added_requests
from diagnosis.evidence.added_requests import (
    added_per_s,
    longer_than,
    outputs_were_added,
    prompts_were_added,
    were_added,
)
from diagnosis.evidence.traffic_growth import RequestRateGrowth, added_by_others, first_rates
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import TenantGrowth
from diagnosis.inputs.requests import MIN_REQUESTS, FloatArray, LabelColumn, Requests


def lengths(number: int, seed: int, factor: float = 1.0) -> FloatArray:
    return (np.random.default_rng(seed).lognormal(5.0, 0.8, number) * factor).round() + 1


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.3, 1.0, 2.0])
def test_added_long_requests_are_found_with_their_length(share: float, scale: float) -> None:
    """In at least 46 of 50 samples, the added requests are found."""
    found = 0
    for seed in range(50):
        before = lengths(800, seed)
        usual = lengths(round(800 * scale), seed + 100)
        now = np.concatenate([usual, np.full(round(share * 800 * scale), 5_000.0)])
        bound = longer_than(now, before, scale)
        found += were_added(now, before, scale) and bound < 5_000
        assert (now[now > bound] == 5_000).mean() > 0.5
    assert found >= 46


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_longer_requests_are_not_added_ones(factor: float) -> None:
    for seed in range(50):
        assert not were_added(lengths(800, seed + 100, factor), lengths(800, seed), 1.0)


@pytest.mark.parametrize("factor", [2.0, 4.0])
def test_longer_requests_at_a_higher_rate_are_not_added_ones(factor: float) -> None:
    """If requests became longer, fewer short requests arrive, even at a higher rate."""
    found = [
        were_added(lengths(1_200, seed + 100, factor), lengths(800, seed), 1.0)
        for seed in range(50)
    ]
    assert sum(found) <= 5


@pytest.mark.parametrize("rate", [1.0, 1.5, 5.0])
def test_a_higher_rate_adds_no_long_requests(rate: float) -> None:
    found = [
        longer_than(lengths(round(800 * rate), seed + 100), lengths(800, seed), 1.0)
        for seed in range(100)
    ]
    assert sum(bound < inf for bound in found) <= 5


def test_too_few_requests_are_not_compared() -> None:
    assert not were_added(lengths(MIN_REQUESTS - 1, 1), lengths(500, 2), 1.0)


def requests_of(codes: Any, prompts: FloatArray, tenants: int) -> Requests:
    size = len(prompts)
    return Requests(
        np.arange(size),
        {"prompt_tokens": prompts, "output_tokens": np.full(size, 50.0)},
        {"tenant": LabelColumn(np.asarray(codes, dtype=np.int32), tuple(map(str, range(tenants))))},
    )


def case_of(tenants: int, size: int, added: int) -> DiagnosisCase:
    """Return a case in which tenant 1 adds long prompts."""
    rng = np.random.default_rng(11)
    codes = rng.permutation(np.arange(2 * size) % tenants)
    prompts = lengths(2 * size, 3)
    prompts[rng.random(2 * size) < 0.05] = np.nan
    codes_now = np.concatenate([codes[size:], np.full(added, 1)])
    now = requests_of(codes_now, np.concatenate([prompts[size:], np.full(added, 9e3)]), tenants)
    before = requests_of(codes[:size], prompts[:size], tenants)
    found = SimpleNamespace(
        before=before, hot_requests=now, hot_s=300.0, baseline_observed_s=300.0, cache={}
    )
    most = TenantGrowth("0", 1.0, 2.0, 0.6)
    found.cache[first_rates.__wrapped__] = RequestRateGrowth(most, 3.0, 6.0, 0.5)  # type: ignore[attr-defined]
    return cast(DiagnosisCase, found)


def of_each_tenant(case: DiagnosisCase, tokens: str) -> float:
    """Return the added rate as a sum over tenants, as the reference."""
    total = 0.0
    for name in case.hot_requests.label("tenant").values:
        sides = []
        for each in (case.before, case.hot_requests):
            values = each.rows(each.label("tenant").is_value(name)).number(tokens)
            sides.append(values[np.isfinite(values)])
        bound = added_requests.added_above(sides[1], sides[0], 1.0)
        grown = (sides[1] > bound).sum() / 300.0 - (sides[0] > bound).sum() / 300.0
        total += max(float(grown), 0.0) if name != "0" else 0.0
    return total


def test_the_added_requests_of_each_tenant_are_summed() -> None:
    case = case_of(tenants=20, size=4_000, added=150)
    assert prompts_were_added(case)
    assert not outputs_were_added(case)
    found = added_by_others(case)
    assert found["prompt_tokens"] == pytest.approx(of_each_tenant(case, "prompt_tokens"))
    assert found["prompt_tokens"] == pytest.approx(0.5, rel=0.1)
    assert found["output_tokens"] == 0.0
    assert added_per_s(case, "1", "prompt_tokens") == found["prompt_tokens"]
    assert added_per_s(case, "nobody", "prompt_tokens") == 0.0


def test_thousands_of_tenants_read_each_request_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Selecting each tenant's requests separately would read 40 million labels."""
    tenants, size = 2_000, 20_000
    read = 0

    def counting(name: str, owner: Any, length: Any) -> None:
        plain = getattr(owner, name)

        def counted(*given: Any) -> Any:
            nonlocal read
            read += length(*given)
            return plain(*given)

        monkeypatch.setattr(owner, name, counted)

    counting("is_value", LabelColumn, lambda label, _: label.codes.size)
    counting("is_any", LabelColumn, lambda label, names: label.codes.size + len(names))
    counting("computed_tokens", added_requests, lambda requests, _: len(requests))
    counting("were_added", added_requests, lambda now, before, *_: now.size + before.size)
    counting("longer_than", added_requests, lambda now, before, _: now.size + before.size)
    case = case_of(tenants, size, added=500)
    added_by_others(case)
    most = 2 * size + 500
    assert 0 < read < most * log2(most)
