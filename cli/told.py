"""What a running Tailspan tells of itself on its /metrics."""

from typing import TYPE_CHECKING, Final

from cli import probes
from cli.access import Access
from cli.addresses import authority

if TYPE_CHECKING:  # a command waits for its imports
    from prometheus_client.samples import Sample

TIMEOUT_S: Final = 3.0
MOST_BYTES: Final = 64 * 2**20
"""A thousand replicas tell some 40 MB, and what is asked for here comes last."""


def told(host: str, port: int, access: Access, prefix: str | tuple[str, ...]) -> "list[Sample]":
    """The samples of names with one of these prefixes; none where nobody listens, or another
    program does."""
    from prometheus_client.parser import text_string_to_metric_families

    url = f"{access.scheme}://{authority(host, port)}/metrics"
    body = probes.get(url, TIMEOUT_S, access, most_bytes=MOST_BYTES).body
    lines = [line for line in body.splitlines() if line.startswith(prefix)]
    try:
        families = list(text_string_to_metric_families("\n".join([*lines, ""])))
    except ValueError:
        return []
    return [sample for family in families for sample in family.samples]
