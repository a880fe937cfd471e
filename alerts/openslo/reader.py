"""Read OpenSLO v1 strictly: an error gives file, line, key, the given value and the allowed values.

Every document is checked, even if no other document refers to it. An unsupported key is an error if
ignoring the key would change the objective.

Source: OpenSLO 1.0, github.com/OpenSLO/OpenSLO.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from alerts.errors import AlertsError, DocumentError, shown
from alerts.objectives import Objective, QueryRatio, RawRatio
from alerts.openslo import lint
from alerts.openslo.alert_policies import (
    CONDITION,
    POLICY,
    TARGET,
    policies_of,
    read_condition,
    read_policy,
    read_target,
    resolved,
)
from alerts.openslo.indicator import SLI, read_indicator, sli_spec
from alerts.openslo.metadata import METADATA, annotations_of, labels_of, name_of
from alerts.openslo.time_window import (
    METHODS,
    SLICE,
    SLICED,
    over_slices,
    read_period,
    read_share,
    read_slices,
)
from alerts.strict_yaml import Items, MappingReader, Node, read_documents

VERSION: Final = "openslo/v1"
ENVIRONMENT_KEY: Final = "TAILSPAN_OBJECTIVES"
"""Files and folders of the active objectives, separated as in PATH."""
OBJECTIVES: Final = Path(__file__).parents[1] / "objectives"
"""The folder of the default objectives."""

KINDS: Final = (
    "SLO",
    "SLI",
    "Service",
    "DataSource",
    "AlertPolicy",
    "AlertCondition",
    "AlertNotificationTarget",
)
_DOCUMENT: Final = ("apiVersion", "kind", "metadata", "spec")


@dataclass(frozen=True, slots=True)
class Spec:
    """The objectives that were read, and notes on ignored documents."""

    objectives: tuple[Objective, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """The valid objectives, and the errors of the invalid documents."""

    spec: Spec
    errors: tuple[AlertsError, ...]


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The YAML files in `paths`. Subfolders are included.

    A file that has several paths is returned once, with its shortest path. Kubernetes mounts each
    file of a ConfigMap or Secret as a symbolic link into a hidden subfolder.

    Raises:
        FileNotFoundError: a path does not exist, or a folder contains no YAML file.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for end in ("yaml", "yml") for each in path.rglob(f"*.{end}"))
            if not inside:
                raise FileNotFoundError(f"{path}: no *.yaml or *.yml in this folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise FileNotFoundError(f"{path}: no such file or folder")
    files: dict[str, Path] = {}
    for path in found:
        real = os.path.realpath(path)
        files[real] = min(files.get(real, path), path, key=lambda each: len(each.parts))
    return list(files.values())


def load(paths: Iterable[Path]) -> Spec:
    """The objectives of files and folders.

    Raises:
        AlertsError: the first error found.
        FileNotFoundError: a path does not exist.
    """
    findings = inspect(paths)
    if findings.errors:
        raise findings.errors[0]
    return findings.spec


def inspect(paths: Iterable[Path]) -> Findings:
    """The objectives of files and folders, with every error."""
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
    """The objectives in texts. `texts` maps a file name to the file's content."""
    collected = _Collected()
    for file, text in texts.items():
        try:
            documents = read_documents(text, file)
        except DocumentError as error:
            collected.errors.append(error)
            continue
        if not documents:
            collected.errors.append(DocumentError(file, 1, "", "contains no document"))
        for document in documents:
            collected.take(document, file)
    return collected.resolved()


class _Collected:
    """All documents. They are collected first, because a document may refer to a later document."""

    def __init__(self) -> None:
        self.errors: list[AlertsError] = []
        self._notes: list[str] = []
        self._slos: list[tuple[MappingReader, MappingReader]] = []
        self._specs: dict[str, dict[str, MappingReader]] = {kind: {} for kind in KINDS}

    def take(self, document: Node, file: str) -> None:
        for each in document.items if isinstance(document, Items) else (document,):
            try:
                self._take(each, file)
            except DocumentError as error:
                self.errors.append(error)

    def _take(self, document: Node, file: str) -> None:
        whole = MappingReader(document, file, "", _DOCUMENT)
        whole.choice("apiVersion", (VERSION,))
        kind = whole.choice("kind", KINDS)
        metadata = whole.inner("metadata", METADATA)
        name = name_of(metadata)
        if kind == "SLO":
            self._slos.append((whole, metadata))
            return
        if name in self._specs[kind]:
            raise metadata.error("name", f"{shown(name)}: another {kind} has this name")
        self._specs[kind][name] = whole.inner("spec", _SPECS[kind])

    def resolved(self) -> Findings:
        sources = self._sources()
        self._check_others(sources)
        objectives: dict[str, Objective] = {}
        for whole, metadata in self._slos:
            try:
                for objective in _slo(whole, metadata, self._specs, sources):
                    if objective.name in objectives:
                        other = objectives[objective.name]
                        raise metadata.error(
                            "name",
                            f"{shown(objective.name)}: {other.file}:{other.line} has this name too",
                        )
                    objectives[objective.name] = objective
            except DocumentError as error:
                self.errors.append(error)
        for objective in objectives.values():
            self._notes += lint.notes(objective)
        spec = Spec(tuple(objectives.values()), tuple(self._notes))
        # Referenced documents are read again for each reference.
        return Findings(spec, tuple({str(each): each for each in self.errors}.values()))

    def _sources(self) -> dict[str, str]:
        sources: dict[str, str] = {}
        for name, spec in self._specs["DataSource"].items():
            try:
                spec.node("connectionDetails")
                sources[name] = spec.text("type")
            except DocumentError as error:
                self.errors.append(error)
        return sources

    def _check_others(self, sources: Mapping[str, str]) -> None:
        conditions = self._specs["AlertCondition"]
        for kind, specs in self._specs.items():
            for name, spec in specs.items():
                try:
                    match kind:
                        case "SLI":
                            read_indicator(spec, sources)
                        case "AlertCondition":
                            read_condition(spec)
                        case "AlertPolicy":
                            read_policy(spec, name, conditions)
                        case "AlertNotificationTarget":
                            read_target(spec)
                            self._notes.append(
                                f"{spec.file}:{spec.line}: AlertNotificationTarget {name} has no"
                                " effect: notify.yaml or Alertmanager configures the receivers"
                            )
                except DocumentError as error:
                    self.errors.append(error)


_SPECS: Final[Mapping[str, tuple[str, ...]]] = {
    "SLI": SLI,
    "Service": ("description",),
    "DataSource": ("description", "type", "connectionDetails"),
    "AlertPolicy": POLICY,
    "AlertCondition": CONDITION,
    "AlertNotificationTarget": TARGET,
}
"""The allowed keys of each kind's spec."""

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
_REFUSED: Final = ("value", "indicator", "indicatorRef", "compositeWeight")
_OBJECTIVE: Final = ("displayName", "target", "targetPercent", "op", *SLICE, *_REFUSED)


def _slo(
    whole: MappingReader,
    metadata: MappingReader,
    specs: Mapping[str, Mapping[str, MappingReader]],
    sources: Mapping[str, str],
) -> list[Objective]:
    spec = whole.inner("spec", _SLO)
    name = name_of(metadata)
    indicator = read_indicator(sli_spec(spec, specs["SLI"]), sources)
    sliced = spec.choice("budgetingMethod", METHODS) == SLICED
    period_s, calendar = read_period(spec)
    labels = labels_of(metadata)
    for label in () if isinstance(indicator, RawRatio) else indicator.by:
        if label in dict(labels):
            raise metadata.error(
                "labels", f"{shown(label)} is a label that defines the objective's groups (by)"
            )
    policies = policies_of(spec, specs["AlertPolicy"], specs["AlertCondition"])
    objectives = spec.each("objectives", _OBJECTIVE)
    if not objectives:
        raise spec.error("objectives", "is empty: at least one target is needed")
    made = []
    for each in objectives:
        for key in _REFUSED:
            if key in each:
                raise each.error(
                    key,
                    "is not supported: a tailspan objective has its threshold in its expression,"
                    " and its indicator in the SLO",
                )
        if "op" in each:
            each.choice("op", ("gt", "gte"))  # allowed, because the ratio must be above the target
        target, written = read_share(each, "target", "targetPercent")
        slices = read_slices(each, sliced)
        policy = resolved(policies, each, period_s, target)
        if slices:
            if isinstance(indicator, QueryRatio) and indicator.by:
                raise each.error(
                    "timeSliceWindow",
                    "slices of a Prometheus query's groups are not supported; allowed: no by",
                )
            policy = over_slices(policy, slices, each)
        made.append(
            Objective(
                # The name contains the target, not the position. The position changes when an
                # objective is inserted.
                name=name if len(objectives) == 1 else f"{name}-{_suffix(written)}",
                display_name=each.text("displayName", metadata.text("displayName", name)),
                service=spec.text("service"),
                description=spec.text("description", " ").strip(),
                indicator=replace(indicator, slices=slices),
                target=target,
                target_written=written,
                period_s=period_s,
                calendar=calendar,
                policy=policy,
                labels=labels,
                annotations=annotations_of(metadata),
                alert_when_no_data=all(policy.when_no_data for policy in policies),
                file=whole.file,
                line=each.line,
            )
        )
    return made


def _suffix(target_written: str) -> str:
    """The suffix for a target: 99-9 for 99.9 %."""
    return target_written.removesuffix(" %").replace(".", "-")
