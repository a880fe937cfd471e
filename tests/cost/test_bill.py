from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.bill import bill
from cost.bill_lines import BillLine, sum_lines
from cost.pricefile import parse_prices
from cost.prices import PriceList
from telemetry.requests import PricedBy
from tests.cost.making import (
    PRICES,
    accounts,
    busy,
    cells,
    engine_stretches,
    gpu_minutes,
    start,
    steady,
)


def parts(line: BillLine) -> float:
    known_usd = line.requests_usd + line.wasted_usd + (line.idle_usd or 0.0)
    return known_usd + line.loading_usd + line.unbilled_usd


seconds = st.floats(0, 900, allow_nan=False)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3_000),
            st.integers(1, 5_000),
            st.floats(0, 1),
            st.lists(st.tuples(st.integers(0, 2), seconds, seconds), max_size=4),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 2_000),
    st.integers(1, 6_000),
)
def test_the_parts_sum_to_the_bill_for_any_data(
    fleet: list[tuple[int, int, float, list[tuple[int, float, float]]]], from_s: int, long_s: int
) -> None:
    """By replica, by hour and in total, with an error below 1e-9."""
    samples, rows = {}, []
    for number, (begins, lasts, share, requests) in enumerate(fleet):
        samples[f"r{number}", 0] = busy(begins, begins + lasts, share)
        for hour, billed, wasted in requests:
            rows.append(
                {"replica": f"r{number}", "hour": hour * 3_600, "outcome": "stop",
                 "billed_s": billed, "wasted_s": wasted, "prompt_tokens": 10, "output_tokens": 5}
            )  # fmt: skip
    made = accounts(
        engine_stretches(samples),
        cells(*rows),
        [start(replica) for replica, _ in samples],
        from_s,
        from_s + long_s,
    )
    found = bill(made, PRICES)
    for line in found.lines:
        assert isclose(parts(line), line.bill_usd, rel_tol=1e-9, abs_tol=1e-9)
        assert isclose(line.bill_usd, line.wall_s * 0.001, rel_tol=1e-9, abs_tol=1e-12)
    if (total := found.total) is not None:
        of_engines = sum(each.bill_usd for each in found.by_engine)
        assert isclose(of_engines, total.bill_usd, rel_tol=1e-9, abs_tol=1e-9)
        idle_usd = sum(each.idle_usd or 0.0 for each in found.by_engine)
        assert isclose(idle_usd, total.idle_usd or 0.0, rel_tol=1e-9, abs_tol=1e-9)
        assert isclose(parts(total), total.bill_usd, rel_tol=1e-9, abs_tol=1e-9)
        charged = sum(group.usd or 0.0 for group in found.groups)
        assert isclose(charged, total.requests_usd + total.wasted_usd, rel_tol=1e-9, abs_tol=1e-9)


def test_a_bill_of_two_engines_is_the_replicas_gpu_seconds() -> None:
    """One engine is busy, the other idle."""
    made = accounts(
        engine_stretches({("r", 0): busy(0, 1_000, 0.9), ("r", 1): busy(0, 1_000, 0.0)}),
        cells({"replica": "r", "outcome": "stop", "requests": 9, "billed_s": 850, "wasted_s": 50}),
        [start("r"), start("r", 1)],
        to_s=1_000,
    )
    found = bill(made, PRICES)
    (line,) = found.lines
    assert line.wall_s == 2_000
    assert line.busy_s == pytest.approx(900)
    assert line.idle_usd == pytest.approx(1.1)
    assert parts(line) == pytest.approx(line.bill_usd) == pytest.approx(2.0)
    assert [rate.usd_per_hour for rate in found.rates["r"]] == [3.6, 3.6]
    working, idle = found.by_engine
    assert (working.replica, working.engine, idle.engine) == ("r", 0, 1)
    assert (working.wall_s, working.busy_s, working.idle_usd) == pytest.approx((1_000, 900, 0.1))
    assert (idle.wall_s, idle.busy_s, idle.idle_usd) == pytest.approx((1_000, 0, 1.0))


def test_an_engine_that_reports_no_busy_time_has_no_idle_cost() -> None:
    quiet = [(at, None) for at, _ in busy(0, 1_000, 0.5)]
    made = accounts(
        engine_stretches({("r", 0): busy(0, 1_000, 0.5), ("r", 1): quiet}),
        cells(),
        [start("r"), start("r", 1)],
        to_s=1_000,
    )
    first, second = bill(made, PRICES).by_engine
    assert (first.busy_s, first.idle_usd) == pytest.approx((500, 0.5))
    assert second.bill_usd == pytest.approx(1.0)
    assert second.busy_s is second.idle_usd is None


def test_requests_waste_idle_and_the_rest_are_named() -> None:
    """Busy for 600 of 1,000 s: 500 s for requests, 40 s for repeated work, 60 s for other work."""
    made = accounts(
        engine_stretches({("r", 0): busy(0, 1_000, 0.6)}),
        cells(
            {"replica": "r", "outcome": "stop", "requests": 9, "billed_s": 450, "wasted_s": 40},
            {"replica": "r", "outcome": "abort", "requests": 1, "billed_s": 50, "wasted_s": 0},
        ),
        [start("r")],
    )
    total = bill(made, PRICES).total
    assert total is not None
    assert total.bill_usd == pytest.approx(1.0)
    assert total.requests_usd == pytest.approx(0.5)
    assert total.lost_usd == pytest.approx(0.05)
    assert total.wasted_usd == pytest.approx(0.04)
    assert total.idle_usd == pytest.approx(0.4)
    assert total.unbilled_usd == pytest.approx(0.06)
    assert total.priced_by is PricedBy.LEDGER


def test_an_engine_costs_the_sum_of_its_gpus() -> None:
    made = accounts(
        engine_stretches({("a", 0): busy(0, 100, 0.5), ("b", 0): busy(0, 100, 0.5)}),
        cells(),
        [start("a", gpus=4), start("b", gpus=None)],
    )
    found = bill(made, PRICES)
    assert {line.replica: line.bill_usd for line in found.lines} == pytest.approx(
        {"a": 0.4, "b": 0.1}
    )
    assert found.usd_per_hour == pytest.approx(18.0)


def test_an_engine_that_reports_no_gpus_costs_one_device() -> None:
    """The pages divide an engine's price by its number of devices."""
    made = accounts(engine_stretches({("a", 0): busy(0, 100, 0.5)}), cells(), [start("a", gpus=0)])
    found = bill(made, PRICES)
    assert [line.bill_usd for line in found.lines] == pytest.approx([0.1])
    assert [rate.devices for rate in found.rates["a"]] == [1]


def test_gpus_that_were_used_one_after_another_are_not_added() -> None:
    """The engine does not report its device, and restarts on another GPU after each hour."""
    made = steady({"r": (0, 10_800)}, 0, 10_800)
    gpus = gpu_minutes(("a", 0, 60), ("b", 60, 120), ("b", 120, 180), ("c", 120, 180))
    found = bill(replace(made, starts=[], gpus=gpus), PRICES)
    assert [line.bill_usd for line in found.lines] == pytest.approx([3.6, 3.6, 7.2])


def test_a_move_to_another_gpu_within_an_hour_bills_one_gpu() -> None:
    made = steady({"r": (0, 7_200)}, 0, 7_200)
    gpus = gpu_minutes(("a", 0, 30), ("b", 31, 60), ("b", 60, 90), ("c", 60, 90), ("d", 92, 120))
    found = bill(replace(made, starts=[], gpus=gpus), PRICES)
    assert [line.bill_usd for line in found.lines] == pytest.approx([3.6, 3.6])


def test_hours_sum_to_the_whole() -> None:
    engines = engine_stretches({("r", 0): busy(1_000, 9_000, 0.25)})
    whole = bill(accounts(engines, cells(), [start("r")], 0, 10_800), PRICES).lines
    assert [line.hour_unix_s for line in whole] == [0, 3_600, 7_200]
    pieces = [
        line
        for at in range(0, 10_800, 600)
        for line in bill(accounts(engines, cells(), [start("r")], at, at + 600), PRICES).lines
    ]
    assert sum_lines(pieces).wall_s == pytest.approx(8_000)
    assert sum_lines(pieces).busy_s == pytest.approx(sum_lines(whole).busy_s or 0.0)


def test_a_gap_in_an_engines_samples_is_not_billed() -> None:
    """The rental of the machine may have ended."""
    points = [*busy(0, 300, 0.5), *busy(1_000, 1_300, 0.5, before=150.0)]
    found = bill(accounts(engine_stretches({("r", 0): points}), cells(), [start("r")]), PRICES)
    assert found.total is not None
    assert found.total.wall_s == pytest.approx(600)
    assert found.uptime.gaps_s == pytest.approx(700)


def test_without_a_ledger_busy_time_is_split_by_weighted_tokens() -> None:
    """A cached token counts 1/8 of a computed one, and an output token 1.75."""
    made = accounts(
        engine_stretches({("r", 0): busy(0, 1_000, 0.4)}),
        cells(
            {"replica": "r", "tenant": "a", "prompt_tokens": 900, "cached_tokens": 400,
             "output_tokens": 200},
            {"replica": "r", "tenant": "b", "prompt_tokens": 100, "output_tokens": 0},
        ),
        [start("r")],
    )  # fmt: skip
    found = bill(made, PRICES, ["tenant"])
    a, b = found.groups
    weight = 500 + 400 / 8 + 200 * 1.75
    assert a.usd == pytest.approx(0.4 * weight / (weight + 100))
    assert b.usd == pytest.approx(0.4 * 100 / (weight + 100))
    assert a.priced_by == {PricedBy.TOKENS}
    assert found.total is not None
    assert found.total.idle_usd == pytest.approx(0.6)


def test_without_busy_time_the_whole_time_is_billed_to_requests() -> None:
    """The idle time is unknown, not zero."""
    points = [(at, None) for at in range(0, 1_001, 5)]
    made = accounts(
        engine_stretches({("r", 0): points}),
        cells({"replica": "r", "prompt_tokens": 10, "output_tokens": 10}),
        [start("r")],
    )
    total = bill(made, PRICES).total
    assert total is not None
    assert total.requests_usd == pytest.approx(1.0)
    assert total.idle_usd is None
    assert total.busy_s is None


def test_an_engine_without_a_price_is_named_and_not_free() -> None:
    made = accounts(
        engine_stretches({("r", 0): busy(0, 100, 0.5)}),
        cells({"replica": "r", "requests": 7, "billed_s": 5.0}),
        [start("r", device="Abacus 9000")],
    )
    found = bill(made, PRICES)
    assert found.total is None
    assert [(each.device, each.requests) for each in found.unpriced] == [("Abacus 9000", 7)]
    (group,) = found.groups
    assert group.usd is None
    assert group.unpriced == 7


def test_a_replica_can_be_priced_by_name() -> None:
    prices = parse_prices("replicas: [{match: 'batch-*', usd_per_hour: 36}]", "mine")
    made = accounts(engine_stretches({("batch-1", 0): busy(0, 100, 0.5)}), cells(), [])
    assert [line.bill_usd for line in bill(made, prices).lines] == [pytest.approx(1.0)]
    assert bill(made, PriceList()).total is None


def test_tokens_in_and_out_share_a_requests_cost_by_the_step_model() -> None:
    """α·P and λ·L give 3 s of prefill, and δ·N 1 s of decodes."""
    counts = {
        "prefill_steps_total": [0.0, 0.0, 100.0],
        "steps_total": [0.0, 0.0, 0.0],
        "scheduled_prefill_tokens_total": [0.0, 0.0, 2_000.0],
        "prefill_attention_total": [0.0, 0.0, 0.0],
        "context_tokens_total": [0.0, 0.0, 0.0],
        "decodes_total": [0.0, 0.0, 1_000.0],
    }
    engines = engine_stretches(
        {("r", 0): busy(0, 120, 0.5)}, fit=(0.0, 0.001, 0.0, 0.0, 0.001, 0.01), work=counts
    )
    made = accounts(
        engines,
        cells({"replica": "r", "outcome": "stop", "billed_s": 4.0, "prompt_tokens": 3_000,
               "output_tokens": 1_000}),
        [start("r")],
    )  # fmt: skip
    (group,) = bill(made, PRICES).groups
    assert group.in_usd == pytest.approx(0.003)
    assert group.out_usd == pytest.approx(0.001)
    assert group.usd_per_1k_in == pytest.approx(0.001)
    assert group.usd_per_1k_out == pytest.approx(0.001)


def test_hours_without_samples_have_only_requests_and_waste_in_the_bill() -> None:
    made = replace(
        accounts(
            engine_stretches({("r", 0): busy(3_600, 7_200, 0.5)}),
            cells(
                {"replica": "r", "hour": 0, "billed_s": 900, "wasted_s": 100},
                {"replica": "r", "hour": 3_600, "billed_s": 1_800, "wasted_s": 0},
            ),
            [start("r")],
            0,
            7_200,
        ),
        engines_from_unix_ns=3_600 * 10**9,
    )
    found = bill(made, PRICES)
    assert [line.bill_usd for line in found.lines] == pytest.approx([1.0, 3.6])
    assert [line.idle_usd for line in found.lines] == [None, pytest.approx(1.8)]
    assert [line.unbilled_usd for line in found.lines] == [0, pytest.approx(0, abs=1e-12)]
    assert found.total is not None
    assert parts(found.total) == pytest.approx(found.total.bill_usd)
