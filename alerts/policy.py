"""Burn-rate policies, read from `policies/*.yaml`, and which objectives they can serve."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Final

from alerts import durations
from alerts.burnrate import Pair, Policy
from alerts.documents import Reader, read_documents
from alerts.errors import AlertsError, DocumentError, shown
from alerts.objectives import Objective
from alerts.openslo import Findings

GOOGLE: Final = Path(__file__).parent / "policies" / "google.yaml"

SEVERITIES: Final = ("page", "ticket")
LOWEST_FACTOR: Final = Fraction(9, 10)
"""Slower than the budget allows is no burn; 28 d make the slowest pair 0.933."""


def load_policy(path: Path = GOOGLE) -> Policy:
    """Read a policy.

    Raises:
        DocumentError: it is not one; names file, line and key.
    """
    file = str(path)
    documents = read_documents(path.read_text(encoding="utf-8"), file)
    if len(documents) != 1:
        raise DocumentError(file, 1, "", f"{len(documents)} documents; allowed: exactly one")
    whole = Reader(documents[0], file, "", ("source", "minimum_bad_events", "pairs"))
    minimum = whole.text("minimum_bad_events")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", minimum, re.ASCII):
        raise whole.error(
            "minimum_bad_events", f"{shown(minimum)}; allowed: a whole number above 0"
        )
    pairs = tuple(map(_pair, whole.each("pairs", ("severity", "long", "short", "budget_share"))))
    if not pairs:
        raise whole.error("pairs", "is empty")
    return Policy(path.stem, whole.text("source"), int(minimum), pairs)


def _pair(reader: Reader) -> Pair:
    long_s, short_s = _window_s(reader, "long"), _window_s(reader, "short")
    if short_s >= long_s:
        raise reader.error("short", f"must be shorter than long: {durations.render(long_s)}")
    share = reader.text("budget_share")
    if not re.fullmatch(r"0\.[0-9]{1,6}", share, re.ASCII) or not Fraction(share):
        raise reader.error("budget_share", f"{shown(share)}; allowed: above 0 and below 1: 0.02")
    return Pair(reader.choice("severity", SEVERITIES), long_s, short_s, Fraction(share))


def _window_s(reader: Reader, key: str) -> int:
    try:
        return durations.parse_s(reader.text(key))
    except ValueError as error:
        raise reader.error(key, str(error)) from error


def pairs_for(policy: Policy, period_s: int) -> tuple[Pair, ...]:
    """The pairs that mean something over a period: over a short one, the slowest would alert
    at a burn that keeps the objective."""
    return tuple(pair for pair in policy.pairs if pair.factor(period_s) >= LOWEST_FACTOR)


def impossible(objective: Objective, policy: Policy) -> str | None:
    """Why an objective could never alert, in a sentence; None where it can.

    The budget of a low target is so large that not even a total failure burns it at the
    factor: with 90 % promised, nothing burns faster than 10.
    """
    for pair in pairs_for(policy, objective.period_s):
        factor = pair.factor(objective.period_s)
        if factor * objective.budget >= 1:
            lowest = 1 - 1 / factor
            period = durations.render(objective.period_s)
            return (
                f"{objective.target_written} can never {pair.severity} by the"
                f" {durations.render(pair.long_s)}/{durations.render(pair.short_s)} windows: with"
                f" every request bad its budget burns {_shown(1 / objective.budget)} times too"
                f" fast, and over {period} they wait for more than {_shown(factor)}; allowed:"
                f" above {_shown(lowest * 100)} %"
            )
    return None


def wrong_with(findings: Findings, policy: Policy) -> list[AlertsError]:
    """All that is wrong with what was read: errors, and objectives that could never alert."""
    never = [(each, impossible(each, policy)) for each in findings.spec.objectives]
    return [
        *findings.errors,
        *(DocumentError(each.file, each.line, "target", why) for each, why in never if why),
    ]


def _shown(value: Fraction) -> str:
    """To two digits after the point, upwards, without zeros that say nothing."""
    hundredths = -(-value * 100 // 1)
    return f"{int(hundredths) / 100:.2f}".rstrip("0").rstrip(".")
