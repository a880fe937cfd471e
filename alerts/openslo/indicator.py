"""Read the indicator of an OpenSLO document."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from alerts import expression
from alerts.errors import ExpressionError, shown
from alerts.expression import Expression, Vocabulary
from alerts.fields import GOOD, GROUPING, PROBE_GOOD, PROBE_GROUPING, PROBE_WHERE, WHERE
from alerts.groups import OTHER, SLOTS, Group
from alerts.objectives import EventQuery, GoodProbes, Goodput, Indicator, QueryRatio, RawRatio
from alerts.openslo.metadata import METADATA, RESERVED, name_of
from alerts.prometheus.promql import read_query, read_ratio
from alerts.strict_yaml import MappingReader

TYPES: Final = ("tailspan", "prometheus", "Tailspan", "Prometheus")
ALL: Final = "all"
"""Selects every event. OpenSLO requires a non-empty spec."""
EVENTS: Final = ("requests", "probes")
"""The kinds of events that a tailspan source can count."""


SLI: Final = ("description", "ratioMetric", "thresholdMetric")
_RATIO: Final = ("counter", "good", "bad", "total", "raw", "rawType")
_SOURCE: Final = ("metricSourceRef", "type", "spec")
_QUERY: Final = ("query", "promql", "by")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
MAX_LABELS: Final = 5
"""With more labels, groups have too few events for a budget."""


def sli_spec(spec: MappingReader, slis: Mapping[str, MappingReader]) -> MappingReader:
    """The spec of the inline or referenced indicator."""
    if ("indicator" in spec) == ("indicatorRef" in spec):
        raise spec.error("indicator", "give indicator or indicatorRef: one of them, not both")
    if "indicator" in spec:
        inner = spec.inner("indicator", ("metadata", "spec"))
        if "metadata" in inner:
            name_of(inner.inner("metadata", METADATA))
        return inner.inner("spec", SLI)
    wanted = spec.text("indicatorRef")
    if wanted not in slis:
        known = ", ".join(sorted(slis)) or "none was read"
        raise spec.error("indicatorRef", f"{shown(wanted)} is no SLI; allowed: {known}")
    return slis[wanted]


def read_indicator(sli: MappingReader, sources: Mapping[str, str]) -> Indicator:
    """The indicator of an SLI.

    Raises:
        DocumentError: the SLI is malformed or not supported.
    """
    if "thresholdMetric" in sli:
        raise sli.error(
            "thresholdMetric",
            "is not supported: an average below a threshold guarantees nothing about a single"
            " request; allowed: ratioMetric, with the threshold in good: ttft_s <= 0.5",
        )
    ratio = sli.inner("ratioMetric", _RATIO)
    if "raw" in ratio or "rawType" in ratio:
        return _raw(ratio, sources)
    if ("good" in ratio) == ("bad" in ratio):
        raise ratio.error("good", "give good or bad: one of them, not both")
    part_key = "good" if "good" in ratio else "bad"
    total, part = _source(ratio, "total"), _source(ratio, part_key)
    kind = _source_type(part, sources)
    if _source_type(total, sources) != kind:
        raise total.error("type", f"must be the same as that of {part_key}: {kind}")
    if kind == "prometheus":
        gauges = not ratio.flag("counter", True)
        if "by" in part.inner("spec", _QUERY):
            raise part.inner("spec", _QUERY).error("by", "is given in the spec of total")
        by = _labels(total)

        def counts(text: str) -> EventQuery:
            return read_query(text, gauges=gauges, by=by)

        return QueryRatio(_query(total, counts), _query(part, counts), part_key == "bad", by)
    if part_key == "bad":
        raise ratio.error("bad", "a tailspan source defines good events; allowed: good")
    selection = total.inner("spec", ("events", "where", "by", "reserved"))
    good_spec = part.inner("spec", ("good",))
    probes = selection.choice("events", EVENTS) == "probes" if "events" in selection else False
    where = None
    if "where" in selection and selection.text("where").strip() != ALL:
        where = _expression(selection, "where", PROBE_WHERE if probes else WHERE)
    grouping = PROBE_GROUPING if probes else GROUPING
    by = selection.choices("by", grouping) if "by" in selection else ()
    good = _expression(good_spec, "good", PROBE_GOOD if probes else GOOD)
    counted = GoodProbes if probes else Goodput
    return counted(where, good, by, _reserved(selection, by))


def _reserved(selection: MappingReader, by: tuple[str, ...]) -> tuple[Group, ...]:
    """The groups whose values `reserved` lists. `by` must have a single field."""
    if "reserved" not in selection:
        return ()
    if len(by) != 1:
        raise selection.error(
            "reserved",
            f"lists values of a single field, but by has {len(by)} fields; allowed: by: [tenant]",
        )
    values = selection.texts("reserved")
    if len(values) > SLOTS:
        raise selection.error("reserved", f"{len(values)} values; allowed: at most {SLOTS}")
    if OTHER in values:
        raise selection.error(
            "reserved",
            f"{OTHER} is the group of all remaining requests; allowed: other values",
        )
    return tuple((value,) for value in values)


def _labels(source: MappingReader) -> tuple[str, ...]:
    spec = source.inner("spec", _QUERY)
    if "by" not in spec:
        return ()
    labels = spec.texts("by")
    for label in labels:
        if not _LABEL.fullmatch(label) or label.startswith("__") or label in RESERVED:
            raise spec.error(
                "by",
                f"{shown(label)}; allowed: labels of the series, but not those that the rules set:"
                f" {', '.join(RESERVED)}, __…",
            )
    if len(labels) > MAX_LABELS:
        raise spec.error("by", f"{len(labels)} labels; allowed: at most {MAX_LABELS}")
    return labels


def _raw(ratio: MappingReader, sources: Mapping[str, str]) -> RawRatio:
    for key in ("good", "bad", "total"):
        if key in ratio:
            raise ratio.error(key, "give raw, or total with good or bad: not both")
    raw_type = ratio.choice("rawType", ("success", "failure"))
    ratio.flag("counter", False)
    source = _source(ratio, "raw")
    if _source_type(source, sources) != "prometheus":
        raise source.error("type", "a raw ratio must be a Prometheus query; allowed: Prometheus")
    if _labels(source):
        raise source.inner("spec", _QUERY).error(
            "by",
            "a ratio has no counts, so small groups could not be combined in one group; allowed:"
            " `by` in the spec of `total`, together with `good` or `bad`",
        )
    return RawRatio(_query(source, read_ratio), raw_type == "failure")


def _source(ratio: MappingReader, key: str) -> MappingReader:
    return ratio.inner(key, ("metricSource",)).inner("metricSource", _SOURCE)


def _source_type(source: MappingReader, sources: Mapping[str, str]) -> str:
    if "type" in source or "metricSourceRef" not in source:
        return source.choice("type", TYPES).lower()
    wanted = source.text("metricSourceRef")
    if wanted not in sources:
        known = ", ".join(sorted(sources)) or "none was read"
        raise source.error("metricSourceRef", f"{shown(wanted)} is no DataSource; allowed: {known}")
    if sources[wanted] not in TYPES:
        raise source.error(
            "metricSourceRef",
            f"{shown(wanted)} is of type {shown(sources[wanted])}; allowed: {', '.join(TYPES)}",
        )
    return sources[wanted].lower()


def _expression(reader: MappingReader, key: str, vocabulary: Vocabulary) -> Expression:
    try:
        return expression.parse(reader.text(key), vocabulary)
    except ExpressionError as error:
        raise reader.error(key, str(error)) from error


def _query(source: MappingReader, read: Callable[[str], EventQuery]) -> EventQuery:
    spec = source.inner("spec", _QUERY)
    key = "promql" if "promql" in spec else "query"
    try:
        return read(spec.text(key))
    except ExpressionError as error:
        raise spec.error(key, f"{shown(spec.text(key))}: {error}") from error
