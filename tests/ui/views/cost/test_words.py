from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from math import isclose
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.cost_sides import CostSide, Sides
from analysis.range_costs import CostStep
from cli.render import cost as cost_text
from cost.bill import Unpriced
from cost.bill_lines import BillLine
from cost.capacity import SustainableRate
from cost.engine_costs import EngineCost, of_replicas_with_several_engines
from cost.groups import BillGroup
from cost.managed import BreakEven, ManagedCost, TokenCounts
from cost.pricefile import parse_prices
from cost.prices import ManagedModel
from telemetry.requests import PricedBy
from telemetry.window import Window
from tests.cost.making import costs_at
from ui.frame.view import View
from ui.kit import wording
from ui.kit.downloads import csv_of
from ui.views.cost import charts, words

HOUR_NS = 3_600 * 10**9
HOUR: Any = SimpleNamespace(uptime=SimpleNamespace(up_s=1_800.0))
"""A bill in which an engine was up for half an hour."""


def line(**changes: float | None) -> BillLine:
    """Return an hour of one engine. Half of the bill is for requests, and a tenth of this
    half is for lost requests."""
    plain = BillLine(
        replica="", hour_unix_s=0, engines=1, requests=100, wall_s=3_600, busy_s=2_700,
        bill_usd=4.0, requests_usd=2.0, lost_usd=0.2, wasted_usd=0.4, idle_usd=1.0,
        unbilled_usd=0.6, priced_by=PricedBy.LEDGER,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


dollars = st.floats(0, 100)


@given(dollars, dollars, dollars, st.floats(-5, 100), st.floats(0, 1))
def test_the_parts_drawn_sum_to_the_bill(
    requests: float, wasted: float, idle: float, unbilled: float, lost: float
) -> None:
    whole = requests + wasted + idle + unbilled
    if whole <= 0:
        return
    made = line(
        bill_usd=whole, requests_usd=requests, lost_usd=requests * lost, wasted_usd=wasted,
        idle_usd=idle, unbilled_usd=unbilled,
    )  # fmt: skip
    found = charts.parts(made)
    unseen = 5 * whole * charts.SMALLEST
    assert isclose(sum(part.usd for part in found), whole, abs_tol=unseen)
    for before, part in pairwise(found):
        assert isclose(part.from_usd, before.from_usd + before.usd, abs_tol=unseen)


def test_the_sides_are_a_table_with_their_utilisation() -> None:
    prefill = CostSide("<b>kv_producer", "prefill", 1.2, 1_080.0, 1e15, 1e12, 0.42, 0.05)
    decode = CostSide(None, "decode", 1.6, 1_440.0, None, None, None, None)
    text = words.sides(Sides([prefill, decode], 0.2), line())
    assert "<td>$1.20</td><td>30 %</td><td>18 min</td><td>42 %</td><td>5 %</td>" in text
    assert f"<td>24 min</td><td>{wording.UNKNOWN}</td><td>{wording.UNKNOWN}</td>" in text
    assert "&lt;b&gt;kv_producer" in text
    assert "not divided" in text
    # On a phone, the table scrolls, and the names of the sides stay on one line.
    assert text.startswith("<div class='scrolling' tabindex='0'><table class='data short'>")
    assert "not divided" not in words.sides(Sides([prefill], 1e-6), line())


def test_engines_of_one_replica_are_a_table_with_the_idle_one_first() -> None:
    costs = [
        EngineCost("<b>r", 0, 600.0, 540.0, 1.0, 0.0, 0.1),
        EngineCost("<b>r", 1, 600.0, 0.0, 1.0, 0.0, 1.0),
        EngineCost("alone", 0, 600.0, 0.0, 1.0, 0.0, 1.0),
        EngineCost("quiet", 0, 600.0, None, 1.0, 0.0, None),
        EngineCost("quiet", 1, 600.0, None, 1.0, 0.0, None),
    ]
    text = words.engines(of_replicas_with_several_engines(costs), line())
    assert "&lt;b&gt;r" in text
    assert text.index("r, engine 1") < text.index("r, engine 0")
    assert "<td>9 min</td><td>10 %</td>" in text
    assert f"<td>{wording.UNKNOWN}</td><td>{wording.UNKNOWN}</td>" in text
    assert "alone" not in text


def test_the_chart_of_the_bill_can_be_downloaded() -> None:
    reported = csv_of(charts.waterfall(line())).splitlines()
    assert len(reported) == 7
    assert any(row.startswith("idle,") and ",1.0," in row for row in reported)
    assert any(row.startswith("bill,") and ",4.0," in row for row in reported)


def test_the_chart_over_time_is_in_dollars_per_hour() -> None:
    """If six minutes cost $1, the rate is $10 per hour."""
    bill_line = line(bill_usd=1.0, requests_usd=1.0, lost_usd=0.0, wasted_usd=0.0,
                     idle_usd=0.0, unbilled_usd=0.0)  # fmt: skip
    step = CostStep(0, HOUR_NS // 10, bill_line, costs_at(1.0))
    figure = charts.bill_over_time([step], Window(0, HOUR_NS), UTC)
    (trace,) = figure.data
    assert trace.name == "answers"
    assert trace.y[0] == pytest.approx(10.0)


def test_the_most_expensive_groups_have_colours_and_the_rest_is_merged() -> None:
    rows = [
        {"replica": "r1", "outcome": "stop", "tenant": f"t{n}", "billed_s": float(20 - n)}
        for n in range(20)
    ]
    step = CostStep(0, HOUR_NS, line(), costs_at(1.0, *rows))
    figure = charts.payers_over_time([step], "tenant", Window(0, HOUR_NS), UTC)
    assert [trace.name for trace in figure.data][-1] == charts.REST
    assert len(figure.data) == charts.MAX_PAYERS
    assert sum(trace.y[0] for trace in figure.data) == pytest.approx(sum(range(1, 21)))


def test_partly_unpriced_requests_have_no_token_price() -> None:
    """Without the cost of some requests, the token price would be too low."""
    group = BillGroup(("acme",), requests=10, usd=1.0, prompt_tokens=1_000, in_usd=0.5, out_usd=0.5)
    whole = words.payers([group], "tenant", View(page="cost"), HOUR, {("acme",): 0.7})
    partly = words.payers([replace(group, unpriced=4)], "tenant", View(page="cost"), HOUR, {})
    assert "$1.00</td>" in whole
    assert "<td>$0.100</td>" in whole
    assert "<td>$2.00</td><td>$0.700</td>" in whole  # per hour, managed
    assert "4 unpriced" in partly
    assert "<td>$0.167</td>" in partly


def test_an_unknown_cost_is_a_dash_and_never_zero() -> None:
    text = words.payers([BillGroup((None,), requests=3, unpriced=3)], "tenant", View(), HOUR, {})
    assert "$" not in text
    assert words.UNKNOWN_NAME in text
    groups = [BillGroup(("acme",), requests=1, usd=1.0), BillGroup((None,), requests=3, unpriced=3)]
    beside = words.payers(groups, "tenant", View(), HOUR, {})
    assert "0 %" not in beside.partition(words.UNKNOWN_NAME)[2]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"idle_usd": 2.5}, "idle"),
        ({"idle_usd": 1.0}, "recomputed work"),
        ({"wasted_usd": 0.0, "lost_usd": 0.3}, "not delivered"),
    ],
)
def test_an_unusual_part_of_the_bill_has_advice(changes: dict[str, float], word: str) -> None:
    assert word in (words.advice(line(**changes)) or "")


def test_a_usual_bill_has_no_advice() -> None:
    assert words.advice(line(wasted_usd=0.0, lost_usd=0.0)) is None


@pytest.mark.parametrize("device", ['odd "one" \\ here', "NVIDIA L4", None])
def test_the_example_of_a_price_is_a_price_file(device: str | None) -> None:
    written = words.price_example([Unpriced('r"1', device, 60.0, 5)])
    prices = parse_prices(written, "prices.yaml")
    assert prices.rate(replica='r"1', device=device) is not None
    managed = parse_prices(words.managed_example(['a "b"']), "prices.yaml")
    assert managed.managed_model('a "b"') is not None


def test_break_even_is_where_the_lines_cross() -> None:
    compared = [
        ManagedCost("m", TokenCounts(100, 1, 0, 1), ManagedModel(("m",), "p", "x"), 0.5, False)
    ]
    even = BreakEven(
        rps=2.0, requests_per_month=1.0, tokens_per_month=1.0, sustainable=SustainableRate(900, 1.0)
    )
    figure = charts.break_even(even, 36.0, 0.5, compared)
    ours, theirs = figure.data
    assert theirs.y[1] / theirs.x[1] * even.rps == pytest.approx(ours.y[0])


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (SustainableRate(0, None), "no requests of this range were evaluated"),
        (SustainableRate(99, None), "only 99 requests of this range were evaluated"),
        (SustainableRate(48_028, None), "48,028 requests were evaluated. No rate"),
        (SustainableRate(48_028, 3.0), "met at up to 3/s, so these engines can reach that rate"),
        (SustainableRate(48_028, 1.0), "met at up to 1/s, and higher rates missed them"),
    ],
)
def test_the_break_even_has_its_evidence(kept: SustainableRate, expected: str) -> None:
    even = BreakEven(2.0, 1.0, 1.0, kept)
    compared = [
        ManagedCost("m", TokenCounts(100, 1, 0, 1), ManagedModel(("m",), "p", "x"), 0.5, False)
    ]
    found: Any = SimpleNamespace(
        compared=compared,
        break_even=even,
        window=Window(0, HOUR_NS),
        bill=SimpleNamespace(uptime=SimpleNamespace(up_s=50.0)),
    )
    shown = words.against(found, line())
    assert expected in shown
    assert "the rate now is 2" in shown
    assert expected in cost_text.compliance_text(even)


def test_loading_is_a_part_of_the_sentence_and_of_the_chart() -> None:
    made = line(idle_usd=0.5, loading_usd=0.5)
    assert [part.name for part in charts.parts(made)] == [
        "answers", "lost answers", "recomputed", "idle", "loading", "unbilled",
    ]  # fmt: skip
    assert "loading" not in [part.name for part in charts.parts(line())]


def test_the_table_of_groups_has_dollars_an_hour_and_the_managed_price() -> None:
    groups = [BillGroup(("acme",), requests=2, usd=1.0), BillGroup(("blue",), requests=1)]
    head, acme, blue = charts.table_rows(groups, "tenant", HOUR, {("acme",): 0.7})
    assert head[-2:] == ["usd_per_hour", "managed_usd"]
    assert acme[-2:] == [2.0, 0.7]
    assert blue[-2:] == [None, None]
