"""List the servers whose front end is not Python."""

from collections.abc import Iterator
from typing import Final

from cli.checks.findings import CheckFinding
from cli.checks.newest_data import query_newest_data
from telemetry.printable import printable

_MAX_NAMED: Final = 20
_WIDEST: Final = 120


def front_ends(url: str | None) -> Iterator[CheckFinding]:
    """Yield each server whose requests are measured only by the engine core."""
    from analysis.replica_checks import replicas_without_python_front_end

    found = query_newest_data(url, replicas_without_python_front_end)
    for replica in (found or [])[:_MAX_NAMED]:
        yield CheckFinding(
            "front end",
            True,
            f"{printable(replica, _WIDEST)}: the front end is not Python, so requests are measured"
            " in the engine core only (column basis: engine): from the queue to the last token,"
            " without HTTP status, route, tenant and delivery",
        )
