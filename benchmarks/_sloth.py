"""Sloth's paging rules for an SLO, to compare them with Tailspan's rules on the same series.

An SLI over a window is `(error query) / (total query)` (slok/sloth,
internal/prometheus/recording_rules.go). A page fires if the SLI is above `factor * error budget` in
both windows of a pair (alert_rules.go). The factor is `share of the budget * period / long window`
(internal/alert/alert.go). Sloth's windows are equal to Tailspan's (tests/alerts/test_policy.py).
"""

from fractions import Fraction
from typing import Final

import yaml

from alerts.policy import built_in
from telemetry import durations

ALERT: Final = "SlothPage"
PERIODS_D: Final = (7, 28, 30)
_DAY_S: Final = 86_400


def sloth_pages(bad: str, total: str, target: Fraction, days: int = 30) -> str:
    """A rules file.

    Args:
        bad, total: queries for the bad events and for all events, over `[{{.window}}]`.
        days: one of `PERIODS_D`.

    Raises:
        ValueError: Sloth has no windows for this period, and rejects it.
    """
    if days not in PERIODS_D:
        raise ValueError(f"days is {days}; allowed: {', '.join(map(str, PERIODS_D))}")
    (policy,) = (each for each in built_in() if each.period_s == days * _DAY_S)
    windows = [each for each in policy.windows if each.severity == "page"]
    lengths = sorted({length for each in windows for length in (each.short_s, each.long_s)})
    recorded = [
        {
            "record": _sli(length_s),
            "expr": f"({bad})\n/\n({total})\n".replace("{{.window}}", durations.render(length_s)),
        }
        for length_s in lengths
    ]
    arms = []
    for each in windows:
        factor = each.budget_share * policy.period_s / each.long_s
        above = f"> ({float(factor):g} * {float(1 - target):g})"
        arms.append(f"(\n({_sli(each.short_s)} {above})\nand\n({_sli(each.long_s)} {above})\n)")
    alert = {"alert": ALERT, "expr": "\nor\n".join(arms), "labels": {"severity": "page"}}
    return yaml.safe_dump({"groups": [{"name": "sloth", "rules": [*recorded, alert]}]})


def _sli(length_s: int) -> str:
    return f"slo:sli_error:ratio_rate{durations.render(length_s)}"
