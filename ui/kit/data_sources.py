"""Notes about requests from a source with less detail than the instrumentation.

Pure. A page that shows an engine's native spans must name the details that they lack.
"""

from collections import Counter

import pyarrow as pa

from telemetry.requests import Source
from ui.kit import wording
from ui.kit.columns import texts

LESS = {
    Source.NATIVE: (
        "from the engine's own spans: no time before its queue or after its last token, and"
        " no request that was aborted or refused"
    ),
    Source.CLIENT: "from clients only: the network is in their times, and no phase is known",
}

SCRAPED = (
    "seen by /metrics only. That reports engines, not single requests: there is no latency"
    " to show, which does not mean that there were no requests. Install the instrumentation"
    " beside vLLM, or start it with --otlp-traces-endpoint."
)


def note(table: pa.Table) -> str | None:
    """Return a sentence on the requests without instrumentation; None if there are none.

    Args:
        table: with `source`.
    """
    number = Counter(texts(table, "source"))
    told = [
        f"{wording.counted(number[source.value], 'request')} {less}"
        for source, less in LESS.items()
        if number[source.value]
    ]
    return ". ".join(told) + "." if told else None


def scraped(replicas: int) -> str | None:
    """Return a sentence if there are engines but no requests; None if nothing was scraped."""
    if not replicas:
        return None
    verb = "is" if replicas == 1 else "are"
    return f"{wording.counted(replicas, 'server')} {verb} {SCRAPED}"


def thinned_samples(every_s: int | None) -> str | None:
    """Return how many samples were read; None if all of them were."""
    if every_s is None:
        return None
    return (
        f"Samples were read for 16 s in every {wording.span(every_s)}: rates and shares are "
        "complete, a short burst may be missing from the highest values."
    )
