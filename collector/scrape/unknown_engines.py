"""Describe a response of /metrics that has no series of a known engine, for the log."""

import re
from collections.abc import Iterable
from typing import Final

NO_ENGINES: Final = {
    "dynamo_frontend_": (
        "this is the front end of NVIDIA Dynamo, which is not an engine; scrape the workers"
        " instead, on their DYN_SYSTEM_PORT"
    ),
    "smg_": "this is SGLang's router, which is not an engine; scrape the workers instead",
    "vllm_router_": "this is vLLM's router, which is not an engine; scrape the workers instead",
}
"""Maps the beginning of a series' name to advice for the user. The names are from
tests/collector/samples."""

_SERIES: Final = re.compile(rb"([A-Za-z_:][A-Za-z0-9_:]{0,99})[{ \t]")
_READ_BYTES: Final = 65_536
"""Number of bytes at the start of a response in which the first series is searched."""


def describe(body: bytes, engines: Iterable[str]) -> str:
    """What the response contains instead of an engine's series."""
    lines = b"\n" + body
    for prefix, advice in NO_ENGINES.items():
        if b"\n" + prefix.encode() in lines:
            return advice
    known = ", ".join(engines)
    first = next(filter(None, map(_SERIES.match, body[:_READ_BYTES].split(b"\n"))), None)
    if first is None:
        return f"the response contains no series; known engines: {known}"
    return f"the first series is {first[1].decode()}; known engines: {known}"
