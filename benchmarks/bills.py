"""Computes the bill of steady traffic over an hour, a day, a month and a rolling deploy.

    python benchmarks/bills.py

The traffic is two requests per second on one H100 at $3.60 per hour. The cost must be proportional
to the length of the window, and rates such as dollars per hour must be equal in all cases. In the
rolling deploy, pod-b replaces pod-a at noon of the day.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from cost.bill import bill  # noqa: E402
from telemetry.billing_data import BillingData  # noqa: E402
from tests.cost.making import PRICES, steady  # noqa: E402

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
MONTH_S = 30 * DAY_S


def cases() -> dict[str, BillingData]:
    """Return the bills to compute, by title."""
    one = {"pod-a": (0, MONTH_S)}
    rolled = {"pod-a": (0, DAY_S // 2), "pod-b": (DAY_S // 2, DAY_S)}
    return {
        "1 h": steady(one, 0, HOUR_S),
        "24 h": steady(one, 0, DAY_S),
        "30 d": steady(one, 0, MONTH_S),
        "24 h, pod-b replaces pod-a": steady(rolled, 0, DAY_S),
    }


def main() -> None:
    """Print one line per case."""
    head = ("bill", "requests", "idle", "engines", "an hour", "1M in", "1M out", "in")
    print(f"{'':<28}" + "".join(f"{name:>11}" for name in head))
    for name, billing_data in cases().items():
        found = bill(billing_data, PRICES)
        total, (group,) = found.total, found.groups
        assert total is not None
        per_in, per_out = group.usd_per_1k_in or 0.0, group.usd_per_1k_out or 0.0
        usd = (total.bill_usd, total.requests_usd, total.idle_usd or 0.0)
        rates = (found.usd_per_hour, per_in * 1_000, per_out * 1_000)
        print(
            f"{name:<28}"
            + "".join(f"{each:>11,.2f}" for each in usd)
            + f"{found.engines:>11.2f}"
            + "".join(f"{each:>11.4f}" for each in rates)
            + f"{group.in_usd / (group.in_usd + group.out_usd):>11.1%}"
        )


if __name__ == "__main__":
    main()
