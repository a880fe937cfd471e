from dataclasses import replace

import numpy as np
import pytest

from cost.bill import bill
from cost.energy import _sums, energy, energy_by_group, total_energy
from cost.pricefile import parse_prices
from cost.uptime import uptime_of
from telemetry.billing_data import BillingData, GpuEnergySpans
from tests.cost.making import NS, accounts, cells, engine_stretches, start
from tests.cost.making import PRICES as PRICED

PRICES = parse_prices("carbon: [{match: '*', g_per_kwh: 100}]\npue: {ratio: 1.5}", "mine")


def gpu_stretches(joules: list[float], replica: str = "r") -> GpuEnergySpans:
    """A GPU whose energy counter has these values at whole minutes.

    A minute has a sample at its start, and one a second before its end.
    """
    at = np.arange(len(joules) - 1) * 60
    first = np.array(joules[:-1])
    per_s = np.diff(joules) / 60
    return GpuEnergySpans(
        gpus=[(replica, "0")],
        models=[None],
        which=np.zeros(at.size, np.int64),
        bucket_unix_s=at,
        first_unix_ns=at * NS,
        last_unix_ns=(at + 59) * NS,
        first_j=first,
        last_j=first + per_s * 59,
    )


def fleet(shares: list[float], watts: list[float]) -> BillingData:
    """One engine with a busy share and a power of its GPU for each minute."""
    points, busy_s = [], 0.0
    for minute, share in enumerate(shares):
        points += [(minute * 60 + at, busy_s + at * share) for at in range(60)]
        busy_s += 60 * share
    counter = [0.0, *np.cumsum([each * 60 for each in watts]).tolist()]
    return accounts(
        engine_stretches({("r", 0): points}),
        cells(),
        [start("r", region="eu")],
        0,
        60 * len(shares),
        gpu_stretches(counter),
    )


def test_idle_energy_is_the_energy_without_work() -> None:
    """The GPU draws 100 W, and 300 W more with work."""
    shares = [0.1 * n for n in range(10)] * 2
    made = fleet(shares, [100 + 300 * share for share in shares])
    found = energy(made, PRICES, uptime_of(made.engines, made.from_unix_ns, made.to_unix_ns))["r"]
    idle_s = sum(60 * (1 - share) for share in shares)
    assert found.fitted
    assert found.joules == pytest.approx(sum(60 * (100 + 300 * s) for s in shares), rel=2e-3)
    assert found.idle_j == pytest.approx(100 * idle_s, rel=0.01)
    assert found.co2_g == pytest.approx(found.joules / 3.6e6 * 1.5 * 100)
    equal = fleet([0.5] * 20, [200.0] * 20)  # energy is divided by time
    found = energy(equal, PRICES, uptime_of(equal.engines, 0, 1_200 * NS))["r"]
    assert not found.fitted
    assert found.idle_j == pytest.approx(found.joules / 2, rel=0.01)


def test_a_counter_reset_loses_only_one_interval() -> None:
    """Neither the decrease nor the jump is energy."""
    made = fleet([0.5] * 4, [200.0] * 4)
    gpus = made.gpus
    fallen = gpus.first_j.copy()
    fallen[2:] -= 30_000.0
    last = gpus.last_j.copy()
    last[2:] -= 30_000.0
    restarted = replace(gpus, first_j=fallen, last_j=last)
    again = accounts(made.engines, made.cells, made.starts, 0, 240, restarted)
    found = energy(again, PRICES, uptime_of(again.engines, 0, 240 * NS))["r"]
    assert found.joules == pytest.approx(200.0 * 238)


def test_idle_energy_of_gpus_that_were_used_one_after_another_is_fitted() -> None:
    """Both GPUs together draw what one GPU draws in `fleet`."""
    shares = [0.1 * n for n in range(10)] * 2
    made = fleet(shares, [100 + 300 * share for share in shares])
    which = np.repeat([0, 1], 10)
    several = replace(made.gpus, gpus=[("r", "0"), ("r", "1")], models=[None] * 2, which=which)
    uptime = uptime_of(made.engines, made.from_unix_ns, made.to_unix_ns)
    one = energy(made, PRICES, uptime)["r"]
    both = energy(replace(made, gpus=several), PRICES, uptime)["r"]
    assert both.fitted
    assert both.idle_j == pytest.approx(one.idle_j, rel=0.01)


def test_less_than_a_minute_is_unknown() -> None:
    """The sensor takes too few samples."""
    made = fleet([0.5], [200.0])
    assert energy(made, PRICES, uptime_of(made.engines, 0, 60 * NS)) == {}
    assert total_energy([]) is None


def test_busy_energy_is_split_by_cost_with_an_unbilled_rest() -> None:
    made = fleet([0.1 * n for n in range(10)] * 2, [100.0 + 30 * n for n in range(10)] * 2)
    busy_s = 60 * 9.0
    charged = cells(
        {"replica": "r", "outcome": "stop", "tenant": "a", "billed_s": busy_s / 2},
        {"replica": "r", "outcome": "stop", "tenant": "b", "billed_s": busy_s / 8},
        {"replica": "r", "outcome": "stop", "tenant": "b", "billed_s": 0.0, "wasted_s": busy_s / 8},
        {"replica": "elsewhere", "outcome": "stop", "tenant": "c", "billed_s": 5.0},
    )
    prices = PRICED.before(PRICES)
    made = replace(made, cells=charged)
    found = bill(made, prices, ["tenant"])
    drawn = energy(made, prices, found.uptime)
    by_tenant = dict(
        zip([each.labels[0] for each in found.groups], energy_by_group(found, drawn), strict=True)
    )
    at_work_j = drawn["r"].joules - drawn["r"].idle_j
    one, other = by_tenant["a"], by_tenant["b"]
    assert one is not None
    assert other is not None
    assert one.joules == pytest.approx(at_work_j / 2, rel=0.01)
    assert other.joules == pytest.approx(one.joules / 2, rel=1e-9)
    assert one.co2_g == pytest.approx(one.joules / 3.6e6 * 1.5 * 100)
    assert by_tenant["c"] is None
    assert found.total is not None
    unbilled = found.total.unbilled_usd / (found.total.bill_usd - (found.total.idle_usd or 0.0))
    assert one.joules + other.joules == pytest.approx(at_work_j * (1 - unbilled), rel=1e-9)


@pytest.mark.parametrize("days", [0, 400])
def test_sums_by_pair_of_number_and_minute(days: int) -> None:
    """Memory depends on the number of values, not on the length of time."""
    of = np.array([1, 0, 1, 1, 0])
    at = 60 * np.array([5, 7, 5, 6, 7 + days * 1_440])
    number, when, (summed,) = _sums(of, at, (np.array([1.0, 2.0, 3.0, 4.0, 5.0]),))
    found = dict(zip(zip(number.tolist(), when.tolist(), strict=True), summed, strict=True))
    later = {(0, 420): 7.0} if not days else {(0, 420): 2.0, (0, int(at[4])): 5.0}
    assert found == {(1, 300): 4.0, (1, 360): 4.0, **later}
    assert list(found) == sorted(found)
