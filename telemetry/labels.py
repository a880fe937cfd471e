"""The labels of rows, by which queries filter and group."""

import re
from typing import Final

from telemetry.engines import EngineSample
from telemetry.fields import fields_of
from telemetry.gpus import GpuSample
from telemetry.requests import RequestTimeline

_NUMBERED: Final = frozenset({"engine", "process", "http_status", "streamed", "simulated"})

OTHER: Final = "_other"
"""Rollups store this value for the values of a label beyond its limit."""
MAX_ID_CHARS: Final = 300
"""Maximum length of the ids that servers create."""


def labels_of(row_type: type) -> tuple[str, ...]:
    """The columns that queries may filter by."""
    fields = fields_of(row_type)
    return tuple(each.name for each in fields if each.type is str or each.name in _NUMBERED)


REQUEST_LABELS: Final = labels_of(RequestTimeline)
SAMPLE_LABELS: Final = labels_of(EngineSample)
GPU_LABELS: Final = labels_of(GpuSample)

_REQUEST_TYPES: Final = {each.name: each.type for each in fields_of(RequestTimeline)}


def malformed_request_label(label: str, text: str) -> str | None:
    """Describe the allowed values of a request's label, or return None for an allowed value."""
    return malformed(_REQUEST_TYPES.get(label, str), text)


def malformed(kind: type, text: str) -> str | None:
    """Describe the texts that stand for a value of this type, or return None for such a text."""
    if kind is bool and text not in ("true", "false"):
        return "must be true or false"
    if kind is int and not re.fullmatch(r"-?[0-9]{1,18}", text):
        return "must be a whole number"
    return None
