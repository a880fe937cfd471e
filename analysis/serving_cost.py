"""What serving cost in a time range, and what it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from alerts.objectives import Objective
from analysis.cost_comparison import compared, kept
from cost.bill import Bill, bill
from cost.energy import Energy, GroupEnergy, energy, energy_by_group, total_energy
from cost.managed import BreakEven, Comparison, break_even, tokens_by_model
from cost.prices import PriceList
from store.billing.accounts import accounts
from store.queries import Window
from telemetry.accounts import Accounts


@dataclass(frozen=True, slots=True)
class ServingCost:
    """A bill, and what it is compared with."""

    accounts: Accounts
    bill: Bill
    compared: Sequence[Comparison]
    not_compared: Sequence[str]
    """Why some traffic has no managed price."""
    break_even: BreakEven | None
    """None if a part of the traffic has no price of either kind."""
    energy: Energy | None
    group_energies: Sequence[GroupEnergy | None]
    """For each of the bill's groups."""

    @property
    def requests_per_s(self) -> float:
        """Compared requests per second, averaged over the time in which an engine was up."""
        up_s = self.bill.uptime.up_s or (self.bill.to_unix_ns - self.bill.from_unix_ns) / 1e9
        return sum(each.tokens.requests for each in self.compared) / up_s


def serving_cost(
    engine: Engine,
    window: Window,
    by: Sequence[str],
    prices: PriceList,
    objectives: Sequence[Objective] = (),
) -> ServingCost:
    """Bill a time range and compare it with managed prices.

    Args:
        engine: from `open_database`.
        window: the time range; it is billed in whole minutes.
        by: labels to group the bill by, among them `hour`.
        prices: of engines and of managed APIs.
        objectives: those that a rate must meet to count as sustainable.
    """
    read = accounts(engine, window, [name for name in by if name != "hour"])
    found = bill(read, prices, by)
    comparisons, missing = compared(tokens_by_model(read.cells), prices)
    whole = bool(comparisons) and not missing and not found.unpriced
    billed = Window(read.from_unix_ns, read.to_unix_ns)
    by_replica = energy(read, prices, found.uptime)
    return ServingCost(
        accounts=read,
        bill=found,
        compared=comparisons,
        not_compared=missing,
        break_even=break_even(found.usd_per_hour, comparisons, kept(engine, billed, objectives))
        if whole
        else None,
        energy=total_energy(by_replica.values()),
        group_energies=energy_by_group(found, by_replica),
    )
