from dataclasses import replace

import pytest

from cost.capacity import SustainableRate
from cost.managed import NoManagedPrice, TokenCounts, break_even, compare, tokens_by_model
from cost.pricefile import load_prices, parse_prices
from tests.cost.making import cells

MINE = parse_prices(
    """
managed:
- {match: chat, provider: openrouter, model: meta-llama/llama-3.1-8b-instruct}
- {match: gone, provider: openrouter, model: no-such-model}
""",
    "mine",
)


def test_cached_tokens_are_priced_separately_as_in_the_managed_api() -> None:
    one = compare("chat", TokenCounts(1, 1_000, 500, 100), MINE)
    ten = compare("chat", TokenCounts(10, 10_000, 5_000, 1_000), MINE)
    none_cached = compare("chat", TokenCounts(1, 1_000, 0, 100), MINE)
    assert ten.usd == pytest.approx(10 * one.usd)
    assert one.usd < none_cached.usd


def test_a_model_without_a_price_or_tokens_is_absent_with_a_hint() -> None:
    for model in ("llama", "gone", None):
        with pytest.raises(NoManagedPrice, match="price file"):
            compare(model, TokenCounts(1, 10, 0, 10), MINE)
    with pytest.raises(NoManagedPrice, match="no tokens"):
        compare("chat", TokenCounts(3, 0, 0, 0), MINE)


def test_a_served_name_finds_its_model_among_the_defaults() -> None:
    found = load_prices().managed_model("meta-llama/Llama-3.1-8B-Instruct")
    assert found is not None
    assert found.model == "meta-llama/llama-3.1-8b-instruct"


def test_break_even_is_the_fixed_cost_over_the_price_of_a_request() -> None:
    """$3.60 per hour / $0.01 per request = 0.1 requests per second."""
    each = compare("chat", TokenCounts(10, 10_000, 0, 1_000), MINE)
    found = break_even(each.usd_per_request * 360, [each], SustainableRate(1_000, 0.2))
    assert break_even(10.0, [], SustainableRate(0, None)) is None
    assert found is not None
    assert found.rps == pytest.approx(0.1)
    assert found.requests_per_month == pytest.approx(0.1 * 730 * 3_600)
    assert found.tokens_per_month == pytest.approx(0.1 * 730 * 3_600 * 1_100)
    for kept, reachable in (
        (SustainableRate(48_028, 0.2), True),
        (SustainableRate(48_028, 0.05), False),
        (SustainableRate(48_028, None), False),  # every rate misses the objective
        (SustainableRate(99, None), None),
    ):
        assert replace(found, sustainable=kept).reachable is reachable


def test_refused_requests_are_not_part_of_the_mix() -> None:
    """They reached no engine, and a managed API would not bill them."""
    made = cells(
        {
            "model": "chat",
            "outcome": "stop",
            "requests": 2,
            "prompt_tokens": 30,
            "output_tokens": 7,
        },
        {"model": "chat", "outcome": "abort", "prompt_tokens": 10, "cached_tokens": 4},
        {"model": "chat", "outcome": "rejected", "requests": 9, "prompt_tokens": 900},
        {"model": None, "outcome": "error"},
    )
    assert tokens_by_model(made) == {"chat": TokenCounts(3, 40, 4, 7)}
