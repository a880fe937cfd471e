"""Describe data from sources with less detail than the instrumentation. Pure."""

from collections import Counter

import pyarrow as pa

from analysis.over_time.columns import texts
from telemetry.requests import Source
from ui.kit import wording

SOURCE_NOTES = {
    Source.NATIVE: (
        "from the engine's native spans, which omit the time before the engine's queue, the time"
        " after a request's last token, and all aborted or refused requests"
    ),
    Source.CLIENT: "from clients only: the times include the network, and no phase is known",
}

SCRAPED = (
    "known only from /metrics, which describes engines, not single requests. To see latencies,"
    " install the plugin in vLLM's environment, or start vLLM with --otlp-traces-endpoint."
)


def note(table: pa.Table) -> str | None:
    """A sentence about requests that did not come from the instrumentation, or None.

    `table` has the column `source`.
    """
    number = Counter(texts(table, "source"))
    sentences = [
        f"{wording.counted(number[source.value], 'request')} {less}"
        for source, less in SOURCE_NOTES.items()
        if number[source.value]
    ]
    return ". ".join(sentences) + "." if sentences else None


def scraped(replicas: int) -> str | None:
    """A sentence about the servers whose only source is /metrics, or None if there are none."""
    if not replicas:
        return None
    verb = "is" if replicas == 1 else "are"
    return f"{wording.counted(replicas, 'server')} {verb} {SCRAPED}"


def thinned_samples(every_s: int | None) -> str | None:
    """A sentence that some samples were not read. `every_s` is None if all samples were read."""
    if every_s is None:
        return None
    return (
        f"Only 16 s of every {wording.span(every_s)} were read, so a maximum may miss a short"
        " burst."
    )
