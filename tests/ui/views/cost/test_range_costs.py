from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.over_time.time_bins import SECOND_NS
from analysis.range_costs import RangeCosts, pieces, read_spending
from cost.prices import DevicePrice, PriceList, PriceOrigin
from store.database import open_database
from store.retention import delete_older, delete_older_rollups
from store.rollups.bucket_builder import build_marked
from store.rollups.tables import DAY_S
from telemetry.window import Window
from tests.ui.views.cost.test_page import H100, START_S, priced

__all__ = ["priced"]
PRICES = PriceList(devices=(DevicePrice("H100", (H100,), 3.6, PriceOrigin("a contract")),))


@given(st.integers(0, 10**6), st.integers(1, 10**5), st.sampled_from([60, 180, 300, 1_800]))
def test_pieces_cover_a_range_and_do_not_overlap(start_s: int, length_s: int, piece_s: int) -> None:
    window = Window(start_s * SECOND_NS, (start_s + length_s) * SECOND_NS)
    found = pieces(window, piece_s)
    assert (found[0].from_unix_ns, found[-1].to_unix_ns) == (window.from_unix_ns, window.to_unix_ns)
    for before, after in pairwise(found):
        assert before.to_unix_ns == after.from_unix_ns
        assert after.from_unix_ns % (piece_s * SECOND_NS) == 0
    assert all(each.to_unix_ns - each.from_unix_ns <= piece_s * SECOND_NS for each in found)


@pytest.fixture
def spending(priced: Any) -> Iterator[Callable[[int, int], RangeCosts]]:
    """Return a function that reads the cost of seconds before and after START_S."""
    engine = open_database(priced())

    def read(before_s: int, after_s: int) -> RangeCosts:
        window = Window((START_S - before_s) * SECOND_NS, (START_S + after_s) * SECOND_NS)
        return read_spending(engine, window, {}, PRICES)

    yield read
    engine.dispose()


def test_steps_sum_to_the_bill(spending: Callable[[int, int], RangeCosts]) -> None:
    for before_s in (0, 1_000, 5_000, 20_000):
        found = spending(before_s, 600)
        total = found.bill.total
        assert total is not None
        assert total.bill_usd == pytest.approx(1.2)
        lines = [step.line for step in found.steps if step.line is not None]
        for name in ("bill_usd", "requests_usd", "wasted_usd", "idle_usd", "unbilled_usd"):
            assert sum(getattr(line, name) for line in lines) == pytest.approx(getattr(total, name))
        paid = sum(step.costs.total_usd or 0.0 for step in found.steps)
        assert paid == pytest.approx(found.usd)
        assert found.usd == pytest.approx(total.requests_usd + total.wasted_usd)


def test_a_step_is_as_long_as_engines_were_up_in_it(
    spending: Callable[[int, int], RangeCosts],
) -> None:
    """Two engines at $3.60 per hour were up for ten minutes. The last step of a live page contains
    minutes that have not passed."""
    for around_s in (0, 70, 400, 4_000, 20_000, 400_000):
        steps = spending(around_s, 600 + around_s).steps
        rates = [step.line.bill_usd / step.hours for step in steps if step.line is not None]
        assert rates == pytest.approx([7.2] * len(rates))
        assert rates


def test_a_range_without_rollups_per_minute_has_one_step_per_hour(priced: Any) -> None:
    engine = open_database(priced())
    later_ns = (START_S + 100 * DAY_S) * SECOND_NS
    delete_older(engine, 7 * DAY_S * SECOND_NS, later_ns, pause=lambda: None)
    build_marked(engine, later_ns // SECOND_NS)
    delete_older_rollups(engine, 90 * DAY_S * SECOND_NS, None, later_ns)
    window = Window((START_S - 1_000) * SECOND_NS, (START_S + 600) * SECOND_NS)
    found = read_spending(engine, window, {}, PRICES)
    assert found.bill.total is not None
    assert found.bill.total.bill_usd == pytest.approx(1.2)
    assert [step.line and step.line.bill_usd for step in found.steps] == [None, pytest.approx(1.2)]
    engine.dispose()
