"""Check that each server has its own name."""

from collections.abc import Iterator
from typing import Final

from cli.checks.findings import CheckFinding
from cli.checks.newest_data import query_newest_data
from telemetry import time_text
from telemetry.printable import printable

_MAX_NAMED: Final = 20
_MAX_SERVERS: Final = 4
_WIDEST: Final = 120


def names(url: str | None) -> Iterator[CheckFinding]:
    """Find servers that share a name with another server."""
    from analysis.replica_checks import sender_names

    found = query_newest_data(url, sender_names)
    if found is None or not found.engines:
        return
    for each in found.shared[:_MAX_NAMED]:
        starts = [
            f"process {server.process}, started {time_text.moment(server.started_unix_ns)} UTC"
            for server in each.servers
        ]
        more = len(starts) - _MAX_SERVERS
        listed = "; ".join(starts[:_MAX_SERVERS]) + (f"; and {more} more" if more > 0 else "")
        yield CheckFinding(
            "names",
            False,
            f"{printable(each.replica, _WIDEST)}: {len(each.servers)} servers send data as engine"
            f" {each.engine} of this replica at the same time ({listed}), so their latencies,"
            " counters and costs are mixed",
            "give each server its own name: OTEL_RESOURCE_ATTRIBUTES=service.instance.id=NAME in"
            " its environment; stop any server or simulation from an earlier run",
        )
    if not found.shared:
        number = "one engine has" if found.engines == 1 else f"{found.engines} engines have"
        yield CheckFinding("names", True, f"{number} a name that no other server uses")
