"""The link from a request to its trace, in any trace store.

The variable `KEY` contains the URL, with `{trace_id}`. Ids are external text, so they are
percent-encoded.
"""

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

KEY: Final = "TAILSPAN_TRACE_URL"
PLACES: Final = ("{trace_id}", "{span_id}")
EXAMPLE: Final = "https://jaeger.example.org/trace/{trace_id}"


def template(environ: Mapping[str, str] = os.environ) -> str | None:
    """The configured URL, or None.

    Raises:
        ValueError: the value is not a URL, or has no placeholder.
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
            f"{KEY} is {given[:120]!r}: it must begin with http:// or https:// and contain"
            f" {PLACES[0]}, as in {EXAMPLE}"
        )
    return given


def link(url: str, trace_id: str, span_id: str) -> str:
    """The URL of one trace."""
    for place, value in zip(PLACES, (trace_id, span_id), strict=True):
        url = url.replace(place, quote(value, safe=""))
    return url
