"""Faults of a simulation in words: `engine_stall:1.5@40m+10m`, and the list of all."""

import re
from typing import TYPE_CHECKING

from telemetry import durations

if TYPE_CHECKING:
    from simulator.fault import Fault

_FORM = re.compile(
    r"(?P<cause>\w+)(:(?P<severity>[^@+]+))?(@(?P<start>[^+]+))?(\+(?P<duration>.+))?"
)


def parse(text: str, default_start_s: float) -> "Fault":
    """A fault from `CAUSE[:SEVERITY][@START][+DURATION]`.

    Args:
        text: what was given.
        default_start_s: when it begins where nothing is said. This and START count from
            the beginning of the simulated past.

    Raises:
        ValueError: what is wrong with it, and what is allowed.
    """
    from simulator.fault import Fault

    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r}; allowed: CAUSE[:SEVERITY][@START][+DURATION], as in"
            " engine_stall:1.5@40m+10m"
        )
    severity = 1.0
    if found["severity"]:
        try:
            severity = float(found["severity"])
        except ValueError as error:
            raise ValueError(
                f"{text!r}: severity {found['severity']!r}; allowed: a number, as in 1.5"
            ) from error
    start_s = default_start_s if found["start"] is None else _seconds(found["start"], text)
    end_s = float("inf")
    if found["duration"] is not None:
        end_s = start_s + _seconds(found["duration"], text)
    return Fault(cause=found["cause"], start_s=start_s, end_s=end_s, severity=severity)


def _seconds(text: str, whole: str) -> float:
    try:
        return 0.0 if text == "0" else durations.parse_ns(text) / 1e9
    except ValueError as error:
        raise ValueError(f"{whole!r}: {error}") from error


def listing() -> str:
    """All causes, what each hurts, and what happens."""
    from simulator.faults import INJECTIONS

    lines = [f"{'cause':24}{'hurts':12}what happens"]
    for cause, injection in sorted(INJECTIONS.items()):
        needs = f" (brings {injection.needs})" if injection.needs else ""
        lines.append(f"{cause:24}{injection.hurts:12}{injection.summary}{needs}")
    return "\n".join(lines)
