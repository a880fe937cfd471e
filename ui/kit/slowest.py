"""The table rows of the slowest requests. Pure."""

from collections.abc import Callable
from datetime import tzinfo
from typing import Any, Final

import pyarrow as pa

from analysis.over_time.columns import floats, highest, instants
from analysis.over_time.phases import LAYERS, Matrix
from analysis.over_time.rolled import ROWS
from ui.kit import wording
from ui.kit.request_key import RequestKey
from ui.kit.terms import LATENCY_NAMES, TERMS

DAY_S: Final = 86_400
_CONTENT: Final = "first_content_s"


def slowest(table: pa.Table, latency: str, rows: int = ROWS) -> list[int]:
    """The row numbers of the requests with the highest latency. The slowest request is first."""
    places: list[int] = highest(floats(table, latency), rows).tolist()
    return places


def shown_rows(
    table: pa.Table,
    matrix: Matrix,
    latency: str,
    href: Callable[[RequestKey], str],
    zone: tzinfo,
    length_s: float,
) -> list[dict[str, Any]]:
    """A row for each of the slowest requests. The bars are relative to the longest request.

    Args:
        matrix: from `phases.layers`.
        href: returns the address of a request's page.
        length_s: the length of the range. For a long range, times include the date.
    """
    places = slowest(table, latency)
    picked = table.take(pa.array(places, pa.int64()))
    layered = matrix[places]
    longest = float(layered.sum(axis=1).max(initial=0.0)) or 1.0
    at = instants(picked, "received_unix_ns")
    rows = []
    for place, row in enumerate(picked.to_pylist()):
        key, name = RequestKey.of(row), row["request_id"] or row["trace_id"]
        rows.append(
            {
                "key": str(key),
                "href": href(key),
                "id": wording.plain(name, 64),
                "when": wording.clock(int(at[place]), zone, date=length_s > DAY_S),
                "outcome": row["outcome"],
                **{column: wording.seconds(row[column]) for column in LATENCY_NAMES},
                "tokens": (
                    f"{wording.count(row['prompt_tokens'])} → {wording.count(row['output_tokens'])}"
                ),
                "cached": wording.count(row["cached_tokens"]),
                "tenant": wording.plain(row["tenant"] or wording.UNKNOWN),
                "replica": wording.plain(row["replica"] or wording.UNKNOWN),
                "phases": [
                    {
                        "colour": layer.colour,
                        "share": round(float(value) / longest, 5),
                        "title": f"{layer.name} {wording.seconds(float(value))}",
                    }
                    for layer, value in zip(LAYERS, layered[place], strict=True)
                    if value > 0
                ],
            }
        )
    return rows


def shown_columns(latency: str) -> list[dict[str, Any]]:
    """The table's columns. The selected latency is first. Narrow pages omit the columns with a high
    `rank`."""
    latencies = [latency, *(c for c in ("ttft_s", "tpot_s", "e2e_s") if c != latency)]
    return [
        {"name": "id", "title": "Request", "help": "The server's id of the request.", "rank": 1},
        {"name": "when", "title": "Received", "help": "When the request was received.", "rank": 2},
        {"name": "outcome", "title": "Outcome", "help": "How the request ended.", "rank": 3},
        *(_latency_column(column, 1 if column == latency else 3) for column in latencies),
        {
            "name": "phases",
            "title": "Time by phase",
            "help": "The request's phases. All rows have the scale of the longest request.",
            "rank": 1,
        },
        *([] if latency == _CONTENT else [_latency_column(_CONTENT, 4)]),
        {
            "name": "tokens",
            "title": "Tokens in → out",
            "help": "Number of prompt tokens and of output tokens.",
            "number": True,
            "rank": 3,
        },
        {
            "name": "cached",
            "title": "Cached",
            "help": "Prompt tokens that were found in the prefix cache.",
            "number": True,
            "rank": 4,
        },
        {
            "name": "tenant",
            "title": "Tenant",
            "help": "The tenant that sent the request.",
            "rank": 3,
        },
        {
            "name": "replica",
            "title": "Replica",
            "help": "The replica that handled the request.",
            "rank": 4,
        },
    ]


def _latency_column(column: str, rank: int) -> dict[str, Any]:
    return {
        "name": column,
        "title": LATENCY_NAMES[column],
        "help": TERMS[column],
        "number": True,
        "rank": rank,
    }
