"""Read the name, labels and annotations of an OpenSLO document."""

import re
from typing import Final

from alerts.errors import shown
from alerts.strict_yaml import Fields, Items, MappingReader, YamlScalar

METADATA: Final = ("name", "displayName", "labels", "annotations")

RESERVED: Final = (
    *("alertname", "alertstate", "severity", "slo", "service", "guard", "held_back", "reason"),
)
"""Labels that the rules or Prometheus set themselves."""

RESERVED_ANNOTATIONS: Final = ("summary", "description", "dashboard_url")

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NOT_IN_LABELS: Final = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)


def name_of(metadata: MappingReader) -> str:
    """The name. Labels and annotations are checked and then ignored.

    Raises:
        DocumentError: the metadata is invalid.
    """
    name = metadata.text("name")
    if not _NAME.fullmatch(name):
        raise metadata.error(
            "name", f"{shown(name)}; allowed: a-z, 0-9 and - between them, at most 63 characters"
        )
    for key in ("labels", "annotations"):
        _texts(metadata, key)
    return name


def labels_of(metadata: MappingReader) -> tuple[tuple[str, str], ...]:
    """Labels with their names in Prometheus.

    The items of a sequence are joined by commas. Characters that Prometheus does not allow become
    _. For example, `example.com/team` becomes `example_com_team`.

    Raises:
        DocumentError: two labels have the same name in Prometheus, or a label is reserved.
    """
    labels: dict[str, str] = {}
    for key, value in _texts(metadata, "labels"):
        name = _prometheus_name(key)
        if name in RESERVED or name.startswith("__"):
            raise metadata.error(
                "labels", f"{shown(key)} is set by the rules; reserved: {', '.join(RESERVED)}, __…"
            )
        if name in labels:
            raise metadata.error(
                "labels", f"{shown(key)}: another label has the same name in Prometheus, {name}"
            )
        labels[name] = value
    return tuple(labels.items())


def annotations_of(metadata: MappingReader) -> tuple[tuple[str, str], ...]:
    """The annotations with their names in Prometheus.

    Raises:
        DocumentError: two annotations have the same name in Prometheus, or an annotation is
            reserved.
    """
    annotations: dict[str, str] = {}
    for key, value in _texts(metadata, "annotations"):
        name = _prometheus_name(key)
        if name in RESERVED_ANNOTATIONS:
            raise metadata.error(
                "annotations",
                f"{shown(key)} is set by the rules; reserved: {', '.join(RESERVED_ANNOTATIONS)}",
            )
        if name in annotations:
            raise metadata.error(
                "annotations",
                f"{shown(key)}: another annotation has the same name in Prometheus, {name}",
            )
        annotations[name] = value
    return tuple(annotations.items())


def _prometheus_name(key: str) -> str:
    name = _NOT_IN_LABELS.sub("_", key)
    return f"_{name}" if name[:1].isdigit() else name


def _texts(metadata: MappingReader, key: str) -> list[tuple[str, str]]:
    if key not in metadata:
        return []
    node = metadata.node(key)
    found: list[tuple[str, str]] = []
    for name, value in node.fields.items() if isinstance(node, Fields) else [("", node)]:
        items = value.items if isinstance(value, Items) else (value,)
        texts = [each.text for each in items if isinstance(each, YamlScalar)]
        if not name or len(texts) != len(items):
            raise metadata.error(key, "must be a mapping of texts")
        found.append((name, ",".join(texts)))
    return found
