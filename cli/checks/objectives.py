"""Check that the objectives count incoming requests."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from alerts import vocabulary
from alerts.blindness import REASONS, blind_because
from alerts.burnrate import EventCounts
from alerts.errors import AlertsError
from alerts.openslo.reader import OBJECTIVES, load
from analysis.blind_objectives import blind_reasons
from cli.checks.clocks import LEAD, SLO_LATE_S
from cli.checks.findings import CheckFinding
from cli.checks.newest_data import query_newest_data
from cli.checks.own_metrics import own_series
from exporters.totals.slo import LATE
from server import http_check
from server.client_access import OPEN, ClientAccess
from telemetry.printable import printable


def objectives(
    url: str | None, paths: Sequence[Path], host: str, port: int, access: ClientAccess = OPEN
) -> Iterator[CheckFinding]:
    """Yield each blind objective, and then a list of the other objectives.

    A blind objective counts too few requests or probes to alert. If there is no recent data, yield
    nothing. Without `paths`, check the built-in objectives. `port` is the port of `/metrics`.
    """
    try:
        known = load(paths or [OBJECTIVES]).objectives
    except FileNotFoundError as error:
        yield CheckFinding("objectives", False, f"{error}: no such file", "correct --objectives")
        return
    except AlertsError as error:
        yield CheckFinding("objectives", False, str(error), "correct the file: tailspan slo check")
        return
    exported = _exported(host, port, access)
    looked_at = [each for each in known if not exported or each.name in exported]
    if others := sorted(exported.keys() - {each.name for each in known}):
        names = ", ".join(printable(each, http_check.WIDEST_WHY) for each in others)
        yield CheckFinding(
            "objectives",
            None,
            f"Tailspan runs with objectives that this command does not check: {names}",
            "use the same --objectives as for tailspan up",
        )
    at_s = int(time.time())
    found = query_newest_data(url, lambda engine, _: blind_reasons(engine, looked_at, at_s)) or {}
    blind = {name: reason for name, reason in found.items() if reason is not None}
    for name, reason in blind.items():
        yield _blind(name, "in the last hour", reason)
    late = {slo: reason for slo, reason in exported.items() if reason is not None}
    for name, reason in late.items():
        yield _blind(name, "on /metrics since Tailspan started", reason)
    seeing = sorted(found.keys() - blind.keys() - late.keys())
    for rows in ("requests", "probes"):
        if own := sorted(
            each.name for each in looked_at if each.rows == rows and each.name in seeing
        ):
            yield CheckFinding("objectives", True, f"{rows} are counted for: {', '.join(own)}")


def _exported(host: str, port: int, access: ClientAccess) -> dict[str, str | None]:
    """Map each objective on `/metrics` to the reason why it is blind. The value is None if it is
    not blind."""
    events: dict[str, int] = {}
    late: dict[str, int] = {}
    # The counters are totals since Tailspan's start. Late requests matter only if a clock is behind
    # now.
    late_now = False
    for sample in own_series(host, port, access, ("tailspan_slo_", LEAD)):
        slo = sample.labels.get(vocabulary.SLO, "")
        if sample.name == LEAD:
            late_now |= sample.value < -SLO_LATE_S
        elif sample.name == vocabulary.EVENTS:
            events[slo] = events.get(slo, 0) + int(sample.value)  # the sum over groups
        elif sample.labels.get(vocabulary.REASON) == LATE:
            late[slo] = late.get(slo, 0) + int(sample.value)
    return {
        slo: blind_because(EventCounts(0, number), {LATE: late.get(slo, 0)}, 0)
        if late_now
        else None
        for slo, number in events.items()
    }


def _blind(name: str, when: str, reason: str) -> CheckFinding:
    why, remedy = REASONS[reason]
    shown = printable(name, http_check.WIDEST_WHY)
    return CheckFinding("objectives", False, f"{shown} is blind {when}: {why}", remedy)
