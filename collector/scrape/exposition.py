"""Convert a response of /metrics to the gauges and totals of its engines. Pure.

Only lines of known series are parsed, because a response may have a hundred thousand other lines.
Impossible values are counted and left out.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from collector.normalise.values import MAX_TEXT_CHARS, MAX_TOTAL, RefusalError, count, finite, ratio
from collector.scrape.engine_series import ENGINES, NAMES, STARTED, EngineSeries, EngineTable
from collector.scrape.failure_reasons import ScrapeError, ScrapeFailureReason
from collector.scrape.unknown_engines import describe

MAX_LINES: Final = 10_000
MAX_LINE_CHARS: Final = 8_192
MAX_ENGINES: Final = 256
RATIOS: Final = frozenset({"kv_usage_ratio"})
NUMBERS: Final = frozenset(
    {
        *("modelled_flops_total", "modelled_read_bytes_total", "modelled_write_bytes_total"),
        *("kv_offload_load_s_total", "kv_offload_store_s_total", "kv_offload_lookup_s_total"),
        *("kv_tier_read_s_total", "kv_tier_write_s_total"),
    }
)


class ScrapedEngine(NamedTuple):
    """The engine that a series describes."""

    number: int
    model: str | None


@dataclass(slots=True)
class ParsedExposition:
    """The parsed content of a response."""

    software: str
    engines: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Maps each engine number to the engine's values. The keys of the values are fields of
    `EngineSample`, and `model` if it is known."""
    started_unix_s: float | None = None
    unusable_values: int = 0


def read(body: bytes) -> ParsedExposition:
    """Parse a response.

    Raises:
        ScrapeError: the response is malformed, too long, or not from a known engine.
    """
    series: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples_of(body, NAMES):
        series[sample.name].append(sample)
    for table in ENGINES:
        answer = ParsedExposition(table.name)
        for name, alternatives in table.fields.items():
            _fill(answer, table, name, alternatives, series)
        if answer.engines:
            answer.started_unix_s = _started(series)
            return answer
    raise ScrapeError(
        ScrapeFailureReason.UNKNOWN_ENGINE, describe(body, (table.name for table in ENGINES))
    )


def samples_of(body: bytes, names: Collection[str]) -> Iterator[Sample]:
    """Yield the samples with the given names.

    Args:
        names: full names of samples, including `_total`.

    Raises:
        ScrapeError: the response is malformed or too long.
    """
    try:
        wanted = list(_lines_of_series(body.decode(), names))
        for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
            yield from family.samples
    except ScrapeError:
        raise
    # For a malformed line, the parser raises exceptions of any type.
    except Exception as error:
        raise ScrapeError(ScrapeFailureReason.MALFORMED) from error


def _lines_of_series(text: str, names: Collection[str]) -> Iterator[str]:
    lines = 0
    for line in text.split("\n"):
        if line.partition("{")[0].partition(" ")[0] not in names:
            continue
        lines += 1
        if lines > MAX_LINES or len(line) > MAX_LINE_CHARS:
            raise ScrapeError(ScrapeFailureReason.TOO_LARGE)
        yield line


def _fill(
    answer: ParsedExposition,
    table: EngineTable,
    name: str,
    alternatives: Iterable[EngineSeries],
    series: Mapping[str, list[Sample]],
) -> None:
    for each in alternatives:
        found = _values(table, each, series)
        if not found:
            continue
        whole = _values(table, each.over, series) if each.over else None
        for engine, value in found.items():
            if whole is not None:
                if not whole.get(engine):
                    continue
                value /= whole[engine]
            try:
                checked = _checked(name, value)
            except RefusalError:
                answer.unusable_values += 1
                continue
            if engine.number not in answer.engines and len(answer.engines) >= MAX_ENGINES:
                raise ScrapeError(ScrapeFailureReason.TOO_LARGE)
            fields = answer.engines.setdefault(engine.number, {"model": engine.model})
            # Several models can have the same engine number. The values of these models are summed.
            total = checked if name in RATIOS else fields.get(name, 0) + checked
            try:
                fields[name] = _checked(name, total)
            except RefusalError:  # each value is in range, but the sum is not
                answer.unusable_values += 1
                fields.pop(name, None)
        return


def _values(
    table: EngineTable, wanted: EngineSeries, series: Mapping[str, list[Sample]]
) -> dict[ScrapedEngine, float]:
    """Map each engine to its value: the maximum over the engine's workers (ranks), summed over all
    other labels."""
    parts: dict[tuple[ScrapedEngine, tuple[tuple[str, str], ...]], float] = {}
    for sample in series.get(wanted.name, ()):
        labels = dict(sample.labels)
        if any(labels.get(label) != value for label, value in wanted.where.items()):
            continue
        engine = _engine(table, labels)
        if engine is None or sample.value != sample.value:  # NaN means unknown
            continue
        rest = tuple(
            sorted((key, value) for key, value in labels.items() if key not in table.rank_labels)
        )
        parts[engine, rest] = max(sample.value, parts.get((engine, rest), sample.value))
    sums: dict[ScrapedEngine, float] = {}
    for (engine, _), value in parts.items():
        sums[engine] = sums.get(engine, 0.0) + value
    return sums


def _engine(table: EngineTable, labels: Mapping[str, str]) -> ScrapedEngine | None:
    number = next((labels[label] for label in table.engine_labels if label in labels), "0")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    model = labels.get(table.model_label) if table.model_label else None
    cleaned = (model or "")[:MAX_TEXT_CHARS].replace("\x00", "\ufffd")
    return ScrapedEngine(int(number), cleaned or None)


def _checked(name: str, value: float) -> float | int:
    if name in RATIOS:
        return ratio(value)
    if name in NUMBERS:
        return finite(value)
    return count(int(finite(value)), MAX_TOTAL)


def _started(series: Mapping[str, list[Sample]]) -> float | None:
    started = (sample.value for sample in series.get(STARTED, ()))
    return next((value for value in started if 0 < value < math.inf), None)
