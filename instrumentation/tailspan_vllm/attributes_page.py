"""docs/attributes.md: the vocabulary as one page.

python -m tailspan_vllm.attributes_page docs/attributes.md
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tailspan_vllm import names, vocabulary
from tailspan_vllm.engine_state import config_fingerprint

_COLUMNS: Final = ("Name", "Unit", "Meaning", "Source")
_METRIC_COLUMNS: Final = ("Name", "Unit", "Shape", "Meaning", "Source")


def markdown() -> str:
    """The whole vocabulary as one page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "*Made by `make generate` from `tailspan_vllm/vocabulary.py`; not edited by hand.*"
    yield ""
    yield "# What an instrumented vLLM tells"
    yield ""
    yield (
        f"OTLP spans, metrics and events of the instrumentation scope `{names.SCOPE}`. Names come"
        " from OpenTelemetry's conventions (GenAI, in development, and HTTP) where they have one,"
        " and begin with `tailspan.` where they don't. What is not known is absent, never"
        " zero. Units are UCUM's."
    )
    yield from _section(
        "Resource: who reports",
        "What `OTEL_RESOURCE_ATTRIBUTES` adds besides is passed on, and not kept by Tailspan.",
        _COLUMNS,
        vocabulary.RESOURCE,
    )
    yield from _section(
        "Span: one request",
        "Kind SERVER, named `{operation} {model}`, from received (start) to delivered (end),"
        " child of the request's `traceparent` where it has one; status ERROR for the outcome"
        " `error`. The phases sum to end − start; the one in which a request ended early runs"
        " to its end, and those after it are absent. The parts of queue, prefill and decode sum"
        " to those, and are told all or none.",
        _COLUMNS,
        vocabulary.SPAN_ATTRIBUTES,
    )
    yield from _section(
        "Span events: its instants",
        "In wall-clock time, placed there by one offset a request; durations are taken on the"
        " monotonic clock before. Where vLLM keeps no statistics (`--disable-log-stats`, an"
        " offline `LLM`), scheduled, first and last token are the step ledger's, and queued is"
        " arrived.",
        _COLUMNS,
        vocabulary.SPAN_EVENTS,
    )
    yield from _section(
        "Metrics: one engine, each second",
        "A gauge holds at the instant of its point. A sum is cumulative since the point's"
        " start time, monotonic, and never a delta. An offline `LLM` has no stat logger: its"
        " engine core tells waiting, running and the step ledger's metrics, and no others.",
        _METRIC_COLUMNS,
        [(each.name, names.UNITS[each.name], *each[1:]) for each in vocabulary.METRICS],
    )
    yield from _section("Attributes of the metrics", "", _COLUMNS, vocabulary.METRIC_ATTRIBUTES)
    yield from _section(
        "Metrics: one GPU, each second",
        "Told by a sampler beside the server, under the resource of the replica that the GPU"
        " serves; a GPU that serves none, under its machine's name. What a device cannot tell is"
        " absent.",
        _METRIC_COLUMNS,
        [(each.name, names.GPU_UNITS[each.name], *each[1:]) for each in vocabulary.GPU_METRICS],
    )
    yield from _section("Attributes of a GPU's metrics", "", _COLUMNS, vocabulary.GPU_ATTRIBUTES)
    yield from _section(
        "Event: what an engine was started with",
        "A log record with an event name, of severity INFO.",
        _COLUMNS,
        vocabulary.EVENTS,
    )
    arguments, measured = (
        ", ".join(f"`{name}`" for name in sorted(names_))
        for names_ in (config_fingerprint.NAMES, config_fingerprint.MEASURED)
    )
    yield from _section(
        "Attributes of the event",
        f"Arguments: {arguments}. All but {measured}, which the engine finds out as it starts, are"
        " part of the fingerprint.",
        _COLUMNS,
        vocabulary.EVENT_ATTRIBUTES,
    )


def _section(
    title: str, text: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    if text:
        yield from (text, "")
    yield _row(columns)
    yield _row(["---"] * len(columns))
    for name, unit, *rest in rows:
        yield _row([f"`{name}`", f"`{unit}`" if _is_ucum(unit) else unit, *rest])


def _is_ucum(unit: str) -> bool:
    return unit in ("s", "1", "By", "By/s", "W", "J", "Hz") or unit.startswith("{")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(), encoding="utf-8")
