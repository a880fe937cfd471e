"""The way from a request to its trace, wherever traces are kept.

Pure but for the setting, which the environment holds: a URL in which `{trace_id}` stands for
the trace. Of a request whose ids came from outside nothing but letters and digits goes in.
"""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

KEY: Final = "TAILSPAN_TRACE_URL"
PLACES: Final = ("{trace_id}", "{span_id}")
EXAMPLE: Final = "https://jaeger.example.org/trace/{trace_id}"


def template(environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL that is set; None where none is.

    Raises:
        ValueError: it is none, or has no place for the trace; says what is allowed.
    """
    given = environ.get(KEY, "").strip()
    if not given:
        return None
    try:
        parts = urlsplit(given)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        sound = False
    if not sound or PLACES[0] not in given:
        raise ValueError(
            f"{KEY} is {given[:120]!r}: it must begin with http:// or https:// and hold"
            f" {PLACES[0]}, as in {EXAMPLE}"
        )
    return given


def link(url: str, trace_id: str, span_id: str) -> str:
    """The address of one trace."""
    for place, value in zip(PLACES, (trace_id, span_id), strict=True):
        url = url.replace(place, quote(value, safe=""))
    return url
