"""Select the format of a scrape from the request's headers.

Protobuf needs an Accept entry with the parameters `proto` and `encoding`. Its weight (`q`) must be
at least the weight of text.
"""

import re
from enum import StrEnum
from typing import Final

_PROTOBUF: Final = "application/vnd.google.protobuf"
_PROTO: Final = "io.prometheus.client.MetricFamily"
_OPENMETRICS: Final = "application/openmetrics-text"
_WEIGHT: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\Z")


class Format(StrEnum):
    """The formats of a scrape. The values are content types."""

    PLAIN = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    PROTOBUF = f"{_PROTOBUF}; proto={_PROTO}; encoding=delimited"


def wanted(accept: str) -> Format:
    """The format to use for an `Accept` header."""
    protobuf = text = 0.0
    for entry in accept.split(","):
        media, *rest = (part.strip() for part in entry.split(";"))
        media = media.lower()
        given = {name.strip().lower(): value.strip(' "') for name, _, value in _pairs(rest)}
        weight = _weight(given.get("q"))
        if media == _PROTOBUF and (given.get("proto"), given.get("encoding")) == (
            _PROTO,
            "delimited",
        ):
            protobuf = max(protobuf, weight)
        elif media in (_OPENMETRICS, "text/plain"):
            text = max(text, weight)
    if protobuf > 0 and protobuf >= text:
        return Format.PROTOBUF
    return Format.OPENMETRICS if _OPENMETRICS in accept else Format.PLAIN


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an `Accept-Encoding` header allows gzip."""
    weights = {}
    for entry in accept_encoding.lower().split(","):
        coding, *rest = (part.strip() for part in entry.split(";"))
        given = {name.strip(): value.strip() for name, _, value in _pairs(rest)}
        weights[coding] = _weight(given.get("q"))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _pairs(parameters: list[str]) -> list[tuple[str, str, str]]:
    return [parameter.partition("=") for parameter in parameters]


def _weight(given: str | None) -> float:
    if given is None:
        return 1.0
    return float(given) if _WEIGHT.match(given) else 0.0
