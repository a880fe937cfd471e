"""From a database to an explanation: what is read, and the question that it answers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import Engine

from diagnosis.arrow import REQUEST_COLUMNS, requests_of, servers_of
from diagnosis.delayers import delayers
from diagnosis.explain import explain
from diagnosis.explanation import Explanation
from diagnosis.parts import PARTS, split_s
from diagnosis.question import Metric, Question, Span
from store import queries
from store.evidence import evidence
from store.queries import Window

_AROUND_NS = 600 * 10**9
"""How long before a request those began that can have delayed it."""


def explained(engine: Engine, question: Question, equals: Mapping[str, str | None]) -> Explanation:
    """Read what a question needs, and answer it."""
    whole = Window(question.whole.from_unix_ns, question.whole.to_unix_ns)
    found = evidence(engine, whole, REQUEST_COLUMNS, equals)
    servers = servers_of(found.engines, found.gpus, found.starts)
    return explain(requests_of(found.requests), servers, question)


def request_explained(engine: Engine, request_id: str) -> dict[str, Any] | None:
    """A request's own parts and who delayed it; None where there is no such request."""
    found = queries.request_table(
        engine,
        Window(0, 2**63 - 1),
        equals={"request_id": request_id},
        columns=["received_unix_ns", "e2e_s", "replica", "trace_id"],
        limit=1,
    ).to_pylist()
    if not found:
        return None
    (row,) = found
    around = Window(
        max(0, row["received_unix_ns"] - _AROUND_NS),
        row["received_unix_ns"] + int((row["e2e_s"] or 0.0) * 1e9) + 1,
    )
    known = [name for name in REQUEST_COLUMNS if name in queries.REQUEST_COLUMNS]
    table = queries.request_table(
        engine,
        around,
        equals={"replica": row["replica"]},
        columns=[*known, "request_id", "trace_id"],
    )
    requests = requests_of(table)
    ids, traces = table["request_id"].to_pylist(), table["trace_id"].to_pylist()
    victim = traces.index(row["trace_id"])
    parts = split_s(requests.rows(np.array([victim])), Metric.E2E)[0]
    return {
        "request_id": request_id,
        "trace_id": row["trace_id"],
        "replica": row["replica"],
        "received": row["received_unix_ns"] / 1e9,
        "e2e_s": row["e2e_s"],
        "parts": [
            {"part": part, "seconds": float(parts[place])}
            for place, part in enumerate(PARTS)
            if parts[place]
        ],
        "delayed_by": [
            {
                "request_id": ids[each.row],
                "trace_id": traces[each.row],
                "tenant": _text(table["tenant"][each.row].as_py()),
                "prompt_tokens_meanwhile": round(each.tokens),
                "cost_s": each.cost_s,
            }
            for each in delayers(requests, victim)
        ],
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def question_of(metric: str, window: Window, baseline: tuple[int, int] | None) -> Question:
    """A question about a window; without a baseline, against the stretch just before."""
    span = Span(window.from_unix_ns, window.to_unix_ns)
    return Question(Metric(metric), span, span.before if baseline is None else Span(*baseline))
