"""In which format a scraper wants its answer.

Protobuf is the one in which native histograms can be told. It is given to whoever names it, with
all of its parameters, at least as gladly as a text; everybody else gets what they always got.
"""

import re
from enum import StrEnum
from typing import Final

_PROTOBUF: Final = "application/vnd.google.protobuf"
_PROTO: Final = "io.prometheus.client.MetricFamily"
_OPENMETRICS: Final = "application/openmetrics-text"
_WEIGHT: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)\Z")


class Format(StrEnum):
    """What a scrape can be written in, as its content type."""

    PLAIN = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    PROTOBUF = f"{_PROTOBUF}; proto={_PROTO}; encoding=delimited"


def wanted(accept: str) -> Format:
    """The format of an answer to this `Accept`, whatever it says."""
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
    # Prometheus names OpenMetrics; a browser and curl do not.
    return Format.OPENMETRICS if _OPENMETRICS in accept else Format.PLAIN


def takes_gzip(accept_encoding: str) -> bool:
    """Whether an answer to this `Accept-Encoding` may be compressed by gzip."""
    weights = {}
    for entry in accept_encoding.lower().split(","):
        coding, *rest = (part.strip() for part in entry.split(";"))
        given = {name.strip(): value.strip() for name, _, value in _pairs(rest)}
        weights[coding] = _weight(given.get("q"))
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _pairs(parameters: list[str]) -> list[tuple[str, str, str]]:
    return [parameter.partition("=") for parameter in parameters]


def _weight(told: str | None) -> float:
    """From 0 to 1; what is no weight weighs nothing."""
    if told is None:
        return 1.0
    return float(told) if _WEIGHT.match(told) else 0.0
