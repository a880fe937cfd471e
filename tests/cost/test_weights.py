import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.bill import Bill, bill
from cost.groups import BillGroup
from cost.uptime import Hour
from cost.weights import fitted
from tests.cost.making import PRICES, accounts, cells, engine_stretches, start, steady

HOUR_S = 3_600


def only(found: Bill) -> BillGroup:
    (group,) = found.groups
    return group


def in_share(group: BillGroup) -> float:
    return group.in_usd / (group.in_usd + group.out_usd)


def test_the_same_traffic_has_the_same_rates_over_an_hour_a_day_and_a_week() -> None:
    """Prices per token are equal to within 1e-9."""
    whole = {f"pod-{n}": (0, 7 * 24 * HOUR_S) for n in range(3)}
    found = [only(bill(steady(whole, 0, hours * HOUR_S), PRICES)) for hours in (1, 24, 7 * 24)]
    for each in found[1:]:
        assert each.usd_per_1k_in == pytest.approx(found[0].usd_per_1k_in, rel=1e-9)
        assert each.usd_per_1k_out == pytest.approx(found[0].usd_per_1k_out, rel=1e-9)
        assert in_share(each) == pytest.approx(in_share(found[0]), rel=1e-9)
    minutes = only(bill(steady(whole, 0, 600), PRICES))
    assert in_share(minutes) == pytest.approx(in_share(found[0]), rel=1e-9)


traffic = st.tuples(st.floats(0.1, 5), st.floats(50, 5_000), st.floats(2, 900))


@settings(deadline=None)
@given(st.lists(traffic, min_size=2, max_size=6), st.data())
def test_the_rates_of_a_window_are_cost_weighted_rates_of_its_parts(
    hours: Sequence[tuple[float, float, float]], data: st.DataObject
) -> None:
    fleet = {"a": (0, len(hours) * HOUR_S), "b": (0, HOUR_S)}

    def of(from_h: int, to_h: int) -> BillGroup:
        made = steady(fleet, from_h * HOUR_S, to_h * HOUR_S, lambda at: hours[at // HOUR_S])
        return only(bill(made, PRICES))

    cut = data.draw(st.integers(1, len(hours) - 1))
    whole, parts = of(0, len(hours)), [of(0, cut), of(cut, len(hours))]
    spent = sum(each.usd or 0.0 for each in parts)
    assert whole.usd == pytest.approx(spent, rel=1e-9)
    weighted = sum(in_share(each) * (each.usd or 0.0) for each in parts) / spent
    assert in_share(whole) == pytest.approx(weighted, rel=1e-9)
    assert whole.in_usd == pytest.approx(sum(each.in_usd for each in parts), rel=1e-9)
    assert whole.out_usd == pytest.approx(sum(each.out_usd for each in parts), rel=1e-9)


def test_an_earlier_hours_requests_are_split_by_that_hours_steps() -> None:
    work = {
        "steps_total": [0.0, 0.0, 0.0],
        "scheduled_prefill_tokens_total": [0.0, 0.0, 1_000.0],
        "prefill_attention_total": [0.0, 0.0, 0.0],
        "context_tokens_total": [0.0, 0.0, 0.0],
        "decodes_total": [0.0, 0.0, 3_000.0],
    }
    seconds = [(float(at), at * 0.5) for at in range(0, 121, 60)]
    engines = engine_stretches(
        {("r", 0): seconds}, fit=(0.0, 0.001, 0.0, 0.0, 0.001, math.nan), work=work
    )
    made = accounts(engines, cells({"replica": "r", "requests": 0, "billed_s": 4.0}), [start("r")])
    group = only(bill(made, PRICES))
    assert group.in_usd == pytest.approx(0.001)
    assert group.out_usd == pytest.approx(0.003)


def test_the_requests_of_a_replica_are_counted_once_however_many_engines_it_has() -> None:
    """Two engines with half of the steps each cost the same as one with all."""
    fit = dict(
        zip(
            ("step_model_base_s", "step_model_per_prefill_token_s",
             "step_model_per_prefill_attention_s", "step_model_per_context_token_s",
             "step_model_per_decode_s"),
            (0.004, 3e-5, 1e-9, 2e-8, 5e-5),
            strict=True,
        )
    )  # fmt: skip
    work = {
        "steps_total": 1_000.0,
        "scheduled_prefill_tokens_total": 8e5,
        "prefill_attention_total": 3e8,
        "context_tokens_total": 9e7,
        "decodes_total": 2e5,
    }
    half = {name: amount / 2 for name, amount in work.items()}
    one = fitted([Hour(1.0, 0.0, work, fit)], 1_000, 8e5, 2e5)
    two = fitted([Hour(1.0, 0.0, half, fit), Hour(1.0, 0.0, half, fit)], 1_000, 8e5, 2e5)
    assert one is not None
    assert two is not None
    assert two.uncached == pytest.approx(one.uncached)
    assert two.output == pytest.approx(one.output)
