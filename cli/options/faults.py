"""`--fault`: parse the faults of a simulation, such as `engine_stall:1.5@40m+10m`."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from telemetry import durations

if TYPE_CHECKING:
    from simulator.fault import SimulatedFault

_FORM = re.compile(
    r"(?P<cause>\w+)(:(?P<severity>[^@+]+))?(@(?P<start>[^+]+))?(\+(?P<duration>.+))?"
)


def parse(text: str, default_start_s: float) -> "SimulatedFault":
    """Parse `CAUSE[:SEVERITY][@START][+DURATION]`, or raise ValueError.

    A start is in seconds after the beginning of the simulated past.
    """
    from simulator.fault import CAUSES, SimulatedFault

    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"--fault {text!r}; allowed: CAUSE[:SEVERITY][@START][+DURATION], as in"
            " engine_stall:1.5@40m+10m"
        )
    if found["cause"] not in CAUSES:
        raise ValueError(
            f"--fault {text!r}: unknown cause {found['cause']!r};"
            f" allowed: {', '.join(sorted(CAUSES))} (--list-faults explains them)"
        )
    try:
        severity = float(found["severity"] or 1.0)
    except ValueError:
        severity = 0.0
    if not 0 < severity < float("inf"):
        raise ValueError(
            f"--fault {text!r}: severity {found['severity']!r}; allowed: a number above 0, as in"
            " 1.5"
        )
    start_s = default_start_s if found["start"] is None else _seconds(found["start"], text)
    end_s = float("inf")
    if found["duration"] is not None:
        end_s = start_s + _seconds(found["duration"], text)
    if end_s <= start_s:
        raise ValueError(f"--fault {text!r}: duration 0; allowed: above 0, as in +10m")
    return SimulatedFault(cause=found["cause"], start_s=start_s, end_s=end_s, severity=severity)


def _seconds(text: str, whole: str) -> float:
    try:
        return 0.0 if text == "0" else durations.parse_ns(text) / 1e9
    except ValueError as error:
        raise ValueError(f"--fault {whole!r}: {error}") from error


def lines() -> Iterator[str]:
    """Yield a table of all causes, with the affected latency and a description."""
    from simulator.faults import INJECTIONS

    yield f"{'cause':24}{'affects':12}what happens"
    for cause, injection in sorted(INJECTIONS.items()):
        needs = f" (also simulates {injection.needs})" if injection.needs else ""
        yield f"{cause:24}{injection.affects:12}{injection.summary}{needs}"


def json_lines() -> Iterator[str]:
    """Yield each cause as a JSON object."""
    from simulator.faults import INJECTIONS

    for cause, injection in sorted(INJECTIONS.items()):
        yield json.dumps(
            {
                "cause": cause,
                "affects": injection.affects,
                "summary": injection.summary,
                "needs": injection.needs,
            }
        )
