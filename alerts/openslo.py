"""OpenSLO v1, read strictly: an error names file, line, key, the value given, those allowed.

Read are SLO, SLI, Service and DataSource. What would change a promise if it were ignored is
refused (calendar windows, time slices, thresholds outside the expression); what only tells
someone else's alerting what to do (AlertPolicy, AlertCondition, AlertNotificationTarget,
and an SLO's alertPolicies) is left out and noted, for the windows come from `policies/`.

Source: OpenSLO 1.0, github.com/OpenSLO/OpenSLO.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Final

from alerts import durations, expression
from alerts.documents import Fields, Items, Node, Reader, Text, read_documents
from alerts.errors import AlertsError, DocumentError, ExpressionError, shown
from alerts.expression import Expression, Vocabulary
from alerts.fields import GOOD, WHERE
from alerts.objectives import Goodput, Indicator, Objective, Query, QueryRatio
from alerts.policy import policy_for
from alerts.promql import read_query

VERSION: Final = "openslo/v1"
OBJECTIVES: Final = Path(__file__).parent / "objectives"
"""In force where none are named."""

READ: Final = ("SLO", "SLI", "Service", "DataSource")
LEFT_OUT: Final = ("AlertPolicy", "AlertCondition", "AlertNotificationTarget")
SHORTEST_PERIOD_S: Final = 7 * durations.UNITS_S["d"]
LONGEST_PERIOD_S: Final = 366 * durations.UNITS_S["d"]

_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "spec")
_METADATA: Final = ("name", "displayName", "labels", "annotations")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Spec:
    """What was read: the objectives, and what was left out of account."""

    objectives: tuple[Objective, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was found: the objectives that hold, and what is wrong with the others."""

    spec: Spec
    errors: tuple[AlertsError, ...]


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The YAML files that are named, or lie in folders that are.

    Raises:
        FileNotFoundError: a path that is not there, or a folder without any.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for end in ("yaml", "yml") for each in path.glob(f"*.{end}"))
            if not inside:
                raise FileNotFoundError(f"{path}: no *.yaml or *.yml in this folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path}: no such file or folder")
    return list(dict.fromkeys(found))


def load(paths: Iterable[Path]) -> Spec:
    """The objectives of files and folders.

    Raises:
        AlertsError: the first thing that is wrong.
        FileNotFoundError: a path that is not there.
    """
    findings = inspect(paths)
    if findings.errors:
        raise findings.errors[0]
    return findings.spec


def inspect(paths: Iterable[Path]) -> Findings:
    """Like `load`, but tells everything that is wrong."""
    texts: dict[str, str] = {}
    errors: list[AlertsError] = []
    for path in files_of(paths):
        try:
            texts[str(path)] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            errors.append(DocumentError(str(path), 1, "", f"cannot be read as UTF-8: {error}"))
    findings = inspect_texts(texts)
    return Findings(findings.spec, (*errors, *findings.errors))


def inspect_texts(texts: Mapping[str, str]) -> Findings:
    """The objectives of texts, by the names of their files."""
    collected = _Collected()
    for file, text in texts.items():
        try:
            documents = read_documents(text, file)
        except DocumentError as error:
            collected.errors.append(error)
            continue
        if not documents:
            collected.errors.append(DocumentError(file, 1, "", "holds no document"))
        for document in documents:
            collected.take(document, file)
    return collected.resolved()


class _Collected:
    """Documents of all files: an SLO may refer to an SLI that comes later."""

    def __init__(self) -> None:
        self.errors: list[AlertsError] = []
        self._notes: list[str] = []
        self._slos: list[tuple[Reader, Reader]] = []
        self._slis: dict[str, Reader] = {}

    def take(self, document: Node, file: str) -> None:
        try:
            self._take(document, file)
        except DocumentError as error:
            self.errors.append(error)

    def _take(self, document: Node, file: str) -> None:
        whole = Reader(document, file, "", _DOCUMENT)
        whole.choice("apiVersion", (VERSION,))
        kind = whole.choice("kind", (*READ, *LEFT_OUT))
        metadata = whole.inner("metadata", _METADATA)
        name = _name(metadata)
        if kind == "SLO":
            self._slos.append((whole, metadata))
        elif kind == "SLI":
            if name in self._slis:
                raise metadata.error("name", f"{shown(name)}: another SLI has this name")
            self._slis[name] = whole
        elif kind in LEFT_OUT:
            self._notes.append(
                f"{file}:{whole.line}: {kind} {name}: left out; burn-rate windows come from"
                " alerts/policies"
            )

    def resolved(self) -> Findings:
        objectives: dict[str, Objective] = {}
        for whole, metadata in self._slos:
            try:
                for objective in _slo(whole, metadata, self._slis, self._notes):
                    if objective.name in objectives:
                        other = objectives[objective.name]
                        raise metadata.error(
                            "name",
                            f"{shown(objective.name)}: {other.file}:{other.line} has this name too",
                        )
                    objectives[objective.name] = objective
            except DocumentError as error:
                self.errors.append(error)
        spec = Spec(tuple(objectives.values()), tuple(self._notes))
        return Findings(spec, tuple(self.errors))


_SLO: Final = (
    "description",
    "service",
    "indicator",
    "indicatorRef",
    "timeWindow",
    "budgetingMethod",
    "objectives",
    "alertPolicies",
)
_OBJECTIVE: Final = (
    "displayName",
    "target",
    "targetPercent",
    "op",
    "value",
    "timeSliceTarget",
    "timeSliceWindow",
    "indicator",
    "indicatorRef",
    "compositeWeight",
)


def _slo(
    whole: Reader, metadata: Reader, slis: Mapping[str, Reader], notes: list[str]
) -> list[Objective]:
    spec = whole.inner("spec", _SLO)
    name = _name(metadata)
    indicator = _indicator(_sli_spec(spec, slis))
    method = spec.choice("budgetingMethod", ("Occurrences", "Timeslices", "RatioTimeslices"))
    if method != "Occurrences":
        raise spec.error(
            "budgetingMethod",
            f"{method} is not supported: Prometheus would cut other slices than Tailspan does, and"
            " the two would tell of other burns; allowed: Occurrences",
        )
    period_s = _period_s(spec)
    if "alertPolicies" in spec:
        notes.append(
            f"{whole.file}:{whole.line}: SLO {name}: alertPolicies are left out; burn-rate"
            " windows come from alerts/policies"
        )
    objectives = spec.each("objectives", _OBJECTIVE)
    if not objectives:
        raise spec.error("objectives", "is empty: at least one target is needed")
    made = []
    for place, each in enumerate(objectives, 1):
        for key in _OBJECTIVE[3:]:
            if key in each:
                raise each.error(
                    key,
                    "is not supported: a tailspan objective has its threshold in its expression,"
                    " and its indicator in the SLO",
                )
        target, written = _target(each)
        policy = policy_for(period_s, 1 - target)
        made.append(
            Objective(
                name=name if len(objectives) == 1 else f"{name}-{place}",
                display_name=each.text("displayName", metadata.text("displayName", name)),
                service=spec.text("service"),
                description=spec.text("description", " ").strip(),
                indicator=indicator,
                target=target,
                target_written=written,
                period_s=period_s,
                policy=policy,
                file=whole.file,
                line=each.line,
            )
        )
    return made


def _sli_spec(spec: Reader, slis: Mapping[str, Reader]) -> Reader:
    """The indicator's spec: written here, or referred to."""
    if ("indicator" in spec) == ("indicatorRef" in spec):
        raise spec.error("indicator", "give indicator or indicatorRef: one of them, not both")
    if "indicator" in spec:
        inner = spec.inner("indicator", ("metadata", "spec"))
        if "metadata" in inner:
            _name(inner.inner("metadata", _METADATA))
        return inner.inner("spec", _SLI)
    wanted = spec.text("indicatorRef")
    if wanted not in slis:
        known = ", ".join(sorted(slis)) or "none was read"
        raise spec.error("indicatorRef", f"{shown(wanted)} is no SLI; allowed: {known}")
    return slis[wanted].inner("spec", _SLI)


_SLI: Final = ("description", "ratioMetric", "thresholdMetric")
_RATIO: Final = ("counter", "good", "bad", "total", "raw", "rawType")
_SOURCE: Final = ("metricSourceRef", "type", "spec")


def _indicator(sli: Reader) -> Indicator:
    if "thresholdMetric" in sli:
        raise sli.error(
            "thresholdMetric",
            "is not supported: an average under a threshold promises no request anything;"
            " allowed: ratioMetric, with the threshold in good: ttft_s <= 0.5",
        )
    ratio = sli.inner("ratioMetric", _RATIO)
    for key in ("raw", "rawType"):
        if key in ratio:
            raise ratio.error(key, "is not supported: a ratio made elsewhere keeps no counts")
    if ("good" in ratio) == ("bad" in ratio):
        raise ratio.error("good", "give good or bad: one of them, not both")
    part_key = "good" if "good" in ratio else "bad"
    total, part = _source(ratio, "total"), _source(ratio, part_key)
    kinds = ("tailspan", "prometheus")
    kind = part.choice("type", (*kinds, "Tailspan", "Prometheus")).lower()
    if total.choice("type", (*kinds, "Tailspan", "Prometheus")).lower() != kind:
        raise total.error("type", f"must be the same as of {part_key}: {kind}")
    if kind == "prometheus":
        if not ratio.flag("counter", True):
            raise ratio.error("counter", "false: gauges are not supported; allowed: true")
        return QueryRatio(_query(total), _query(part), part_key == "bad")
    if part_key == "bad":
        raise ratio.error("bad", "a tailspan source says what is good; allowed: good")
    selection = total.inner("spec", ("where",))
    promise = part.inner("spec", ("good",))
    where = _expression(selection, "where", WHERE) if "where" in selection else None
    return Goodput(where, _expression(promise, "good", GOOD))


def _source(ratio: Reader, key: str) -> Reader:
    return ratio.inner(key, ("metricSource",)).inner("metricSource", _SOURCE)


def _expression(reader: Reader, key: str, vocabulary: Vocabulary) -> Expression:
    try:
        return expression.parse(reader.text(key), vocabulary)
    except ExpressionError as error:
        raise reader.error(key, str(error)) from error


def _query(source: Reader) -> Query:
    spec = source.inner("spec", ("query", "promql"))
    key = "promql" if "promql" in spec else "query"
    try:
        return read_query(spec.text(key))
    except ExpressionError as error:
        raise spec.error(key, f"{shown(spec.text(key))}: {error}") from error


def _period_s(spec: Reader) -> int:
    windows = spec.each("timeWindow", ("duration", "isRolling", "calendar"))
    if len(windows) != 1:
        raise spec.error("timeWindow", f"{len(windows)} windows; allowed: exactly one")
    window = windows[0]
    if "calendar" in window or not window.flag("isRolling", False):
        raise window.error(
            "isRolling",
            "calendar periods are not supported: a month has 28 to 31 days, and a burn that is too"
            " fast in one would be none in another; allowed: isRolling: true",
        )
    try:
        period_s = durations.parse_s(window.text("duration"))
    except ValueError as error:
        raise window.error("duration", str(error)) from error
    if not SHORTEST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:
        raise window.error(
            "duration", f"{shown(window.text('duration'))}; allowed: 7d to 366d, for instance 30d"
        )
    return period_s


def _target(objective: Reader) -> tuple[Fraction, str]:
    """The target exactly as written, and as people read it."""
    if ("target" in objective) == ("targetPercent" in objective):
        raise objective.error("target", "give target or targetPercent: one of them, not both")
    key = "target" if "target" in objective else "targetPercent"
    text, most = objective.text(key), 1 if key == "target" else 100
    problem = f"{shown(text)}; allowed: a decimal number above 0 and below {most}, as 99 % is"
    example = "0.99" if most == 1 else "99"
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,12})?", text, re.ASCII):
        raise objective.error(key, f"{problem} {example}")
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise objective.error(key, f"{problem} {example}") from error
    if not 0 < value < most:
        raise objective.error(key, f"{problem} {example}")
    percent = (value * (100 // most)).normalize()
    return Fraction(value) / most, f"{percent:f} %"


def _name(metadata: Reader) -> str:
    name = metadata.text("name")
    if not _NAME.fullmatch(name):
        raise metadata.error(
            "name", f"{shown(name)}; allowed: a-z, 0-9 and - between them, at most 63"
        )
    for key in ("labels", "annotations"):
        if key in metadata:
            _plain(metadata, key)
    return name


def _plain(metadata: Reader, key: str) -> None:
    """Labels and annotations are other people's affair, but must be texts."""
    node = metadata.node(key)
    values = node.fields.values() if isinstance(node, Fields) else None
    if values is None or not all(
        isinstance(value, Text)
        or (isinstance(value, Items) and all(isinstance(each, Text) for each in value.items))
        for value in values
    ):
        raise metadata.error(key, "must be a mapping of texts")
