"""Read the metrics of a running Tailspan."""

from typing import TYPE_CHECKING, Final

from cli.options.addresses import authority
from server import http_check
from server.client_access import ClientAccess

if TYPE_CHECKING:  # a slow import
    from prometheus_client.samples import Sample

TIMEOUT_S: Final = 3.0
MAX_BYTES: Final = 64 * 2**20
"""Maximum size of the response. A thousand replicas produce about 40 MB."""


def own_series(
    host: str, port: int, access: ClientAccess, prefix: str | tuple[str, ...]
) -> "list[Sample]":
    """The samples whose names have one of these prefixes. The result is empty if a program other
    than Tailspan answers."""
    from prometheus_client.parser import text_string_to_metric_families

    url = f"{access.scheme}://{authority(host, port)}/metrics"
    body = http_check.get(url, TIMEOUT_S, access, max_bytes=MAX_BYTES).body
    # `splitlines` would also split at characters that a label's value may contain, such as U+2028.
    lines = [line for line in body.split("\n") if line.startswith(prefix)]
    try:
        families = list(text_string_to_metric_families("\n".join([*lines, ""])))
    except ValueError:
        return []
    return [sample for family in families for sample in family.samples]
