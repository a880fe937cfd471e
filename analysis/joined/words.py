"""The words about joined requests that pages and commands share. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from telemetry.joined_request import JOINED_PHASES

PHASE_NAMES: Final[Mapping[str, str]] = {
    phase: phase.removesuffix("_s").replace("_", " ").replace("kv ", "KV ")
    for phase in JOINED_PHASES
}

MAX_SERVERS: Final = 6
"""Maximum number of listed servers of a pool."""


def servers_listed(replicas: Sequence[str], shown: Callable[[str], str]) -> str:
    """Return the names of the first servers of a pool, and the number of the remaining servers.
    `shown` makes a name safe for the output."""
    text = ", ".join(map(shown, replicas[:MAX_SERVERS]))
    more = len(replicas) - MAX_SERVERS
    return f"{text} and {more} more" if more > 0 else text
