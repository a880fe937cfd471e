"""Read a trace of requests from a file in Mooncake's JSON-lines format or in CSV."""

from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from replay.arrivals import Arrivals
from replay.mooncake import BLOCK_TOKENS, read_mooncake
from replay.trace_csv import TraceError, TraceRow
from replay.trace_csv import read_trace as read_csv

_PEEKED_BYTES: Final = 4096


def read_trace(
    path: Path, block_tokens: int = BLOCK_TOKENS, max_requests: int | None = None
) -> Arrivals:
    """Read a trace. Return the requests in order of time.

    Args:
        path: the file. The file contains lines of JSON if its name ends in .jsonl or .json, or if
            its content begins with `{`. Any other file is CSV.
        max_requests: maximum number of requests, or None for any number.

    Raises:
        TraceError: the file is not a valid trace.
    """
    try:
        with path.open("rb") as file:
            if path.suffix in (".jsonl", ".json") or _has_json(file):
                return read_mooncake(file, str(path), block_tokens, max_requests)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    rows = read_csv(path, max_requests)
    return Arrivals(
        received_s=np.array([row.at_s for row in rows]),
        prompt_tokens=np.array([max(row.prompt_tokens, 1) for row in rows]),
        output_tokens=np.array([max(row.output_tokens, 1) for row in rows]),
    )


def trace_rows(arrivals: Arrivals) -> tuple[TraceRow, ...]:
    """Return a row per request: seconds since the first request, prompt tokens, output tokens."""
    return tuple(
        TraceRow(*row)
        for row in zip(
            (arrivals.received_s - arrivals.received_s[0]).tolist(),
            arrivals.prompt_tokens.tolist(),
            arrivals.output_tokens.tolist(),
            strict=True,
        )
    )


def _has_json(file: BinaryIO) -> bool:
    begins = file.read(_PEEKED_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    file.seek(0)
    return begins.startswith(b"{")
