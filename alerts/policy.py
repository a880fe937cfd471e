"""Burn-rate policies from `policies/*.yaml`, applied to objectives."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Final

from alerts.burnrate import Policy, WindowPair
from alerts.errors import shown
from alerts.strict_yaml import MappingReader
from alerts.yaml_files import read_file
from telemetry import durations

POLICIES: Final = Path(__file__).parent / "policies"

SEVERITIES: Final = ("page", "ticket")

MAX_BAD_RATIO: Final = Fraction(9, 10)
"""Maximum share of bad events that a pair may require for an alert. Without this limit, an
objective with a large budget would never alert: at a target of 90 %, a total failure has a burn
rate of 10, which is below the factor 14.4. The limit is below 1, because otherwise a single good
event would prevent the alert."""


@dataclass(frozen=True, slots=True)
class PolicyWindowPair:
    """A pair of burn-rate windows in a policy file."""

    severity: str
    long_s: int
    short_s: int
    budget_share: Fraction
    """The share of the budget that is spent when the long window alerts."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A policy as defined in its file, for periods of at least `period_s`."""

    name: str
    source: str
    period_s: int
    minimum_bad_events: int
    windows: tuple[PolicyWindowPair, ...]

    def over(self, period_s: int, budget: Fraction) -> Policy:
        """The policy for a period and a budget.

        The factor of each pair is `budget_share × period / long`, limited by `MAX_BAD_RATIO`. If
        two pairs of a severity reach this limit, only the shorter pair remains.
        """
        cap = MAX_BAD_RATIO / budget
        pairs: list[WindowPair] = []
        for each in self.windows:
            factor = min(each.budget_share * period_s / each.long_s, cap)
            same = [pair for pair in pairs if (pair.severity, pair.factor) == (each.severity, cap)]
            if factor < cap or not same:
                pairs.append(WindowPair(each.severity, each.long_s, each.short_s, factor))
        return Policy(self.name, self.source, self.minimum_bad_events, tuple(pairs))


def policy_for(period_s: int, budget: Fraction) -> Policy:
    """The policy with the longest period that does not exceed the objective's period. This choice
    keeps every factor at least as high as in the policy's source."""
    fitting = [each for each in built_in() if each.period_s <= period_s]
    return max(fitting, key=lambda each: each.period_s).over(period_s, budget)


@cache
def built_in() -> tuple[PolicyFile, ...]:
    """The built-in policies."""
    return tuple(map(read_policy, sorted(POLICIES.glob("*.yaml"))))


def read_policy(path: Path) -> PolicyFile:
    """Read a policy file.

    Raises:
        DocumentError: the file is invalid.
    """
    whole = read_file(path, ("source", "period", "minimum_bad_events", "pairs"))
    minimum = whole.text("minimum_bad_events")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", minimum, re.ASCII):
        raise whole.error(
            "minimum_bad_events", f"{shown(minimum)}; allowed: a whole number above 0"
        )
    pairs = whole.each("pairs", ("severity", "long", "short", "budget_share"))
    if not pairs:
        raise whole.error("pairs", "is empty")
    return PolicyFile(
        path.stem,
        whole.text("source"),
        whole.duration_s("period"),
        int(minimum),
        _by_urgency(map(_windows, pairs)),
    )


def _by_urgency(windows: Iterable[PolicyWindowPair]) -> tuple[PolicyWindowPair, ...]:
    return tuple(sorted(windows, key=lambda each: (SEVERITIES.index(each.severity), each.long_s)))


def _windows(reader: MappingReader) -> PolicyWindowPair:
    long_s, short_s = reader.duration_s("long"), reader.duration_s("short")
    if short_s >= long_s:
        raise reader.error("short", f"must be shorter than long: {durations.render(long_s)}")
    share = reader.text("budget_share")
    if not re.fullmatch(r"0\.[0-9]{1,6}", share, re.ASCII) or not Fraction(share):
        raise reader.error("budget_share", f"{shown(share)}; allowed: above 0 and below 1: 0.02")
    return PolicyWindowPair(reader.choice("severity", SEVERITIES), long_s, short_s, Fraction(share))
