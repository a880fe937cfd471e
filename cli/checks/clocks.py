"""Check for wrong clocks."""

from collections.abc import Iterator

from cli.checks.findings import CheckFinding, length
from cli.checks.newest_data import query_newest_data
from cli.checks.own_metrics import own_series
from server import http_check
from server.client_access import OPEN, ClientAccess
from telemetry.printable import printable

LEAD = "tailspan_clock_lead_seconds"
LATE_S = 60.0
"""Maximum age of data when it arrives. Exporters send every few seconds."""
RETENTION_BEHIND_S = 3_600.0
"""Maximum delay of the deletion of old rows. A downtime delays the deletion by its own length."""
_MAX_NAMED = 20
SLO_LATE_S = 300.0
"""Equal to `exporters.totals.slo.LATE_NS`."""
_LATE_FOR = "; tailspan_slo_* does not count this sender's requests, because they arrive too late"
_APART_S = 1.0


def clocks(host: str, port: int, access: ClientAccess = OPEN) -> Iterator[CheckFinding]:
    """Compare the senders' clocks with the collector's clock."""
    leads_s: dict[str, float] = {}
    ahead_s: dict[str, float] = {}
    own_s: dict[str, float] = {}
    for sample in own_series(host, port, access, ("tailspan_clock_", "tailspan_retention_")):
        if sample.name in ("tailspan_clock_jump_seconds", "tailspan_retention_behind_seconds"):
            own_s[sample.name] = sample.value
        source = sample.labels.get("source", "")
        if sample.name == LEAD:
            leads_s[source] = sample.value
        elif sample.name == "tailspan_clock_ahead_seconds" and sample.value > 0:
            ahead_s[source] = sample.value
    yield from _own_clock(
        own_s.get("tailspan_clock_jump_seconds", 0.0),
        own_s.get("tailspan_retention_behind_seconds", 0.0),
    )
    if not leads_s:
        return
    # If the clocks of all senders are ahead, the collector's own clock is behind.
    ours = " (all senders' clocks are ahead: first check the clock of the collector's machine)"
    note = ours if 1 < len(leads_s) == len(ahead_s) else ""
    behind = [-lead_s for lead_s in leads_s.values() if lead_s < -LATE_S]
    theirs = ours if 1 < len(leads_s) == len(behind) else ""
    for source, seconds in sorted(ahead_s.items(), key=lambda each: -each[1])[:_MAX_NAMED]:
        yield CheckFinding(
            "clocks",
            False,
            f"{_printable_source(source)}: its clock is at least {length(seconds)} ahead;"
            " its timestamps are corrected by this offset",
            f"set it by NTP (timedatectl, chronyc tracking){note}",
        )
    late = {name: -lead_s for name, lead_s in leads_s.items() if lead_s < -LATE_S}
    for source, seconds in sorted(late.items(), key=lambda each: -each[1])[:_MAX_NAMED]:
        yield CheckFinding(
            "clocks",
            None,
            f"{_printable_source(source)}: its telemetry is {length(seconds)} old when it arrives;"
            f" alerts are delayed by the same time{_LATE_FOR if seconds > SLO_LATE_S else ''}",
            "set its clock by NTP if the clock is behind; otherwise find where telemetry is"
            " delayed, for example in a gateway's queue" + theirs,
        )
    if not ahead_s and not late:
        number = f"{len(leads_s)} senders" if len(leads_s) > 1 else "one sender"
        yield CheckFinding("clocks", True, f"{number}, none with a clock ahead of the collector's")


def _own_clock(jump_s: float, behind_s: float) -> Iterator[CheckFinding]:
    if jump_s:
        way = "ahead of" if jump_s > 0 else "behind"
        yield CheckFinding(
            "clocks",
            False,
            f"Tailspan's own clock is {length(abs(jump_s))} {way} the time that alerts and"
            " retention use: the clock jumped, or was wrong at the start, and the senders' clocks"
            " do not confirm its new time",
            "set it by NTP (timedatectl, chronyc tracking); if no sender's clock contradicts the"
            " new time for 5 min, Tailspan accepts it",
        )
    if behind_s > RETENTION_BEHIND_S:
        yield CheckFinding(
            "retention",
            None,
            f"deletion of old rows is {length(behind_s)} late: Tailspan was down for this time, or"
            " its clock jumped",
            f"if the clock is right, wait: deletion catches up within {length(behind_s)}",
        )


def against_clients(url: str | None) -> Iterator[CheckFinding]:
    """Compare each server's clock with the clocks of its clients. Only requests that both the
    server and the client reported are used."""
    from analysis.replica_checks import replica_clock_offsets

    found = query_newest_data(url, replica_clock_offsets)
    off = [each for each in found or () if each.low_s > _APART_S or each.high_s < -_APART_S]
    for each in off[:_MAX_NAMED]:
        ahead = each.low_s > 0
        seconds, which = (each.low_s, "ahead of") if ahead else (-each.high_s, "behind")
        yield CheckFinding(
            "clocks",
            False,
            f"{_printable_source(each.replica)}: its clock is {which} its clients' by at"
            f" least {length(seconds)}, measured on {each.requests} requests that both reported",
            "set the clock of both machines by NTP (timedatectl, chronyc tracking)",
        )
    if found and not off:
        yield CheckFinding(
            "clocks", True, f"{len(found)} replicas have the same time as their clients"
        )


def _printable_source(source: str) -> str:
    return printable(source, http_check.WIDEST_WHY)
