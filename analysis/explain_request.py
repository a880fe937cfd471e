"""Explain a single request: its parts, and the requests that delayed it."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from diagnosis.inputs.arrow import REQUEST_COLUMNS, requests_of
from diagnosis.one_request.account import account
from store.requests.neighbours import neighbours, place_of


def explain_request(engine: Engine, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a request and the requests that delayed it, as a JSON object.

    Args:
        row: a row from `store.requests.lookup`, with the columns of
            `store.requests.neighbours.OF_REQUEST`.
    """
    table = neighbours(engine, row, [*REQUEST_COLUMNS, "request_id"])
    found = account(requests_of(table), place_of(table, row))
    ids, traces = table["request_id"].to_pylist(), table["trace_id"].to_pylist()
    return {
        "request_id": row["request_id"],
        "trace_id": row["trace_id"],
        "span_id": row["span_id"],
        "replica": row["replica"],
        "received": row["received_unix_ns"] / 1e9,
        "e2e_s": row["e2e_s"],
        "parts": [{"part": part, "seconds": seconds} for part, seconds in found.parts_s.items()],
        "delayed_by": [
            {
                "request_id": ids[each.row] or None,
                "trace_id": traces[each.row] or None,
                "tenant": _text(table["tenant"][each.row].as_py()),
                "prompt_tokens_meanwhile": round(each.tokens),
                "cost_s": each.cost_s,
            }
            for each in found.delayed_by
        ],
        "delayed_by_tenant": [
            {
                "tenant": each.tenant,
                "requests": each.requests,
                "prefill_s": each.prefill_s,
                "decode_s": each.decode_s,
                "cost_s": each.cost_s,
            }
            for each in found.by_tenant
        ],
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
