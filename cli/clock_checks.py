"""Whose clock is off, by what a running Tailspan tells of it on /metrics."""

from collections.abc import Iterator

from cli import probes
from cli.access import OPEN, Access
from cli.addresses import authority
from cli.checks import TIMEOUT_S, Finding, length
from cli.text import printable

LATE_S = 60.0
"""Exporters send every few seconds: what is older on arrival waited, or its clock is behind."""
_MOST_NAMED = 20


def clocks(host: str, port: int, access: Access = OPEN) -> Iterator[Finding]:
    """Whether those who send agree with the collector on what time it is; nothing where none do."""
    from prometheus_client.parser import text_string_to_metric_families

    body = probes.get(f"{access.scheme}://{authority(host, port)}/metrics", TIMEOUT_S, access).body
    told = "\n".join(line for line in body.splitlines() if line.startswith("tailspan_clock_"))
    try:
        families = list(text_string_to_metric_families(told + "\n"))
    except ValueError:
        return  # another program's: `metrics` says so
    leads_s: dict[str, float] = {}
    ahead_s: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        source = sample.labels.get("source", "")
        if sample.name == "tailspan_clock_lead_seconds":
            leads_s[source] = sample.value
        elif sample.name == "tailspan_clock_ahead_seconds" and sample.value > 0:
            ahead_s[source] = sample.value
    if not leads_s:
        return
    # One's own clock is behind, where everybody else's is ahead.
    ours = " (all are: look at the clock of the collector's machine first)"
    whose = ours if 1 < len(leads_s) == len(ahead_s) else ""
    for source, seconds in sorted(ahead_s.items(), key=lambda each: -each[1])[:_MOST_NAMED]:
        yield Finding(
            "clocks",
            False,
            f"{_shown(source)}: its clock is ahead by {length(seconds)} at least;"
            " its instants are set back by that",
            f"set it by NTP (timedatectl, chronyc tracking){whose}",
        )
    late = {name: -lead_s for name, lead_s in leads_s.items() if lead_s < -LATE_S}
    for source, seconds in sorted(late.items(), key=lambda each: -each[1])[:_MOST_NAMED]:
        yield Finding(
            "clocks",
            None,
            f"{_shown(source)}: what it tells is {length(seconds)} old when it comes",
            "its clock is behind (NTP), or telemetry waits on the way, as in a gateway's queue",
        )
    if not ahead_s and not late:
        number = f"{len(leads_s)} senders" if len(leads_s) > 1 else "one sender"
        yield Finding("clocks", True, f"{number}, none with a clock ahead of the collector's")


def _shown(source: str) -> str:
    return printable(source, probes.WIDEST_WHY)
