from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.bill_lines import RequestPrice
from cost.charges import weighed_tokens
from cost.groups import groups_of
from cost.replica_hours import Key, replica_hours
from cost.request_costs import RequestCosts, costs_of
from cost.weights import BY_PRICE, TokenWeights
from telemetry.requests import PricedBy
from tests.cost.making import cells

FITTED = TokenWeights(2e-3, 0.0, 5e-3, fitted=True, in_share=0.3)
PRICING: dict[Key, RequestPrice] = {
    ("ledger", 0): RequestPrice(None, 0.5, None),
    ("ledger", 3_600): RequestPrice(None, 0.25, None),
    ("tokens", 0): RequestPrice(None, 0.5, 1e-3),
}
"""By replica and hour. "tokens" has no price in the second hour."""
WEIGHTS: dict[Key, TokenWeights] = {("ledger", 0): FITTED, ("ledger", 3_600): FITTED}

names = st.sampled_from([None, "a", "b"])
rows = st.lists(
    st.fixed_dictionaries(
        {
            "replica": st.sampled_from(["ledger", "tokens", None]),
            "hour": st.sampled_from([0, 3_600]),
            "outcome": st.sampled_from(["stop", "abort"]),
            "model": names,
            "tenant": names,
            "requests": st.integers(0, 9),
            "billed_s": st.floats(0, 10),
            "wasted_s": st.floats(0, 1),
            "prompt_tokens": st.integers(0, 99),
            "cached_tokens": st.integers(0, 9),
            "output_tokens": st.integers(0, 99),
        }
    ),
    max_size=12,
)
by = st.lists(st.sampled_from(["replica", "outcome", "model", "tenant", "hour"]), unique=True)


def costs(several: list[dict[str, Any]]) -> RequestCosts:
    made = cells(*several)
    hours = replica_hours(made)
    return costs_of(made, hours, weighed_tokens(made, hours, WEIGHTS), PRICING, WEIGHTS)


@given(rows, by)
def test_groups_are_the_sums_of_their_requests(
    several: list[dict[str, Any]], labels: list[str]
) -> None:
    expected: dict[Any, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    split: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in several:
        name = tuple(str(row["hour"]) if each == "hour" else row[each] for each in labels)
        mine, key = expected[name], (row["replica"], row["hour"])
        for amount in ("requests", "prompt_tokens", "output_tokens"):
            mine[amount] += row[amount]
        pricing, weights = PRICING.get(key), WEIGHTS.get(key, BY_PRICE)
        if pricing is None:
            mine["unpriced"] += row["requests"]
            continue
        went_in, came_out = weights.of(
            row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]
        )
        usd, wasted = row["billed_s"] * pricing.usd_per_s, row["wasted_s"] * pricing.usd_per_s
        if pricing.usd_per_weight is not None:
            usd, wasted = (went_in + came_out) * pricing.usd_per_weight, 0.0
        mine["priced"] += 1
        mine["usd"] += usd + wasted
        mine["wasted_usd"] += wasted
        mine["lost_usd"] += usd if row["outcome"] == "abort" else 0.0
        for place, more in enumerate((usd, went_in, came_out)):
            split[name, key][place] += more
    for (name, key), (usd, went_in, came_out) in split.items():
        fallback = WEIGHTS.get(key, BY_PRICE).in_share or 0.0
        share = went_in / (went_in + came_out) if went_in + came_out > 0 else fallback
        expected[name]["in_usd"] += usd * share
        expected[name]["out_usd"] += usd * (1 - share)
    found = {group.labels: group for group in groups_of(costs(several), labels)}
    wanted = {name: each for name, each in expected.items() if each["requests"] or each["usd"]}
    assert found.keys() == wanted.keys()
    for name, group in found.items():
        want = wanted[name]
        assert (group.usd is None) == (not want["priced"])
        assert group.usd_of.keys() <= {"ledger", "tokens"}
        assert sum(group.usd_of.values()) == pytest.approx(group.usd or 0.0)
        for amount in (
            *("requests", "unpriced", "prompt_tokens", "output_tokens"),
            *("lost_usd", "wasted_usd", "in_usd", "out_usd"),
        ):
            assert getattr(group, amount) == pytest.approx(want[amount], abs=1e-12), amount
        assert (group.usd or 0.0) == pytest.approx(want["usd"], abs=1e-12)


@given(rows)
def test_a_filter_and_its_complement_are_all_requests(several: list[dict[str, Any]]) -> None:
    whole = costs(several)
    some = whole.where({"tenant": "a"})
    assert {labels[3] for labels in map(some.cells.labels.__getitem__, some.cells.group)} <= {"a"}
    rest = whole.at(~whole.cells.have({"tenant": "a"}))
    together = (some.total_usd or 0.0) + (rest.total_usd or 0.0)
    assert together == pytest.approx(whole.total_usd or 0.0)


def test_the_most_expensive_group_is_first_and_hours_are_in_order() -> None:
    several = [
        {"replica": "ledger", "outcome": "stop", "tenant": tenant, "hour": hour, "requests": 1,
         "billed_s": seconds, "wasted_s": 0.0}
        for tenant, hour, seconds in (("cheap", 3_600, 1.0), ("dear", 0, 2.0))
    ]  # fmt: skip
    found = costs(several)
    assert [each.labels for each in groups_of(found, ("tenant",))] == [("dear",), ("cheap",)]
    assert [each.labels for each in groups_of(found, ("hour",))] == [("0",), ("3600",)]
    assert groups_of(found, ())[0].priced_by == {PricedBy.LEDGER}
    assert groups_of(costs([]), ("tenant", "hour")) == []
    assert costs([]).total_usd is None
