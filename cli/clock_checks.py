"""Whose clock is off: by what a running Tailspan tells of it on /metrics, and by the requests in
the database that a client told of, too."""

from collections.abc import Iterator

from cli import probes
from cli.access import OPEN, Access
from cli.checks import Finding, length
from cli.newest import of_the_newest
from cli.text import printable
from cli.told import told

LATE_S = 60.0
"""Exporters send every few seconds: what is older on arrival waited, or its clock is behind."""
_MOST_NAMED = 20
_LOOKED_AT_NS = 300 * 10**9
_APART_S = 1.0


def clocks(host: str, port: int, access: Access = OPEN) -> Iterator[Finding]:
    """Whether those who send agree with the collector on what time it is; nothing where none do."""
    leads_s: dict[str, float] = {}
    ahead_s: dict[str, float] = {}
    for sample in told(host, port, access, "tailspan_clock_"):
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


def against_clients(url: str | None) -> Iterator[Finding]:
    """Whether servers agree with their clients on what time it is; nothing where nobody can say.

    Args:
        url: a SQLAlchemy URL; None for the default.
    """
    from store.clock_offsets import offsets
    from store.queries import Window

    found = of_the_newest(
        url,
        lambda engine, newest: offsets(engine, Window(max(0, newest - _LOOKED_AT_NS), newest + 1)),
    )
    off = [each for each in found or () if each.low_s > _APART_S or each.high_s < -_APART_S]
    for each in off[:_MOST_NAMED]:
        ahead = each.low_s > 0
        seconds, which = (each.low_s, "ahead of") if ahead else (-each.high_s, "behind")
        yield Finding(
            "clocks",
            False,
            f"{_shown(each.replica)}: its clock is {which} its clients' by {length(seconds)} at"
            f" least, as {each.requests} requests say that both told of",
            "set both by NTP (timedatectl, chronyc tracking)",
        )
    if found and not off:
        yield Finding(
            "clocks", True, f"{len(found)} of the replicas agree with their clients on the time"
        )


def _shown(source: str) -> str:
    return printable(source, probes.WIDEST_WHY)
