"""From a database to an explanation: what is read, and the question that it answers."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine

from diagnosis.account import account
from diagnosis.arrow import REQUEST_COLUMNS, requests_of, servers_of
from diagnosis.explain import explain
from diagnosis.explanation import Explanation
from diagnosis.question import Metric, Question, Span
from store.evidence import evidence
from store.neighbours import neighbours, place_of
from store.queries import Window


def explained(engine: Engine, question: Question, equals: Mapping[str, str | None]) -> Explanation:
    """Read what a question needs, and answer it."""
    whole = Window(question.whole.from_unix_ns, question.whole.to_unix_ns)
    found = evidence(engine, whole, REQUEST_COLUMNS, equals)
    servers = servers_of(found.engines, found.gpus, found.starts)
    return explain(requests_of(found.requests), servers, question)


def request_explained(engine: Engine, row: Mapping[str, Any]) -> dict[str, Any]:
    """A request's own parts and who delayed it.

    Args:
        engine: from `open_database`.
        row: of `store.named`, with the columns of `store.neighbours.OF_REQUEST`.
    """
    table = neighbours(engine, row, [*REQUEST_COLUMNS, "request_id"])
    told = account(requests_of(table), place_of(table, row))
    ids, traces = table["request_id"].to_pylist(), table["trace_id"].to_pylist()
    return {
        "request_id": row["request_id"],
        "trace_id": row["trace_id"],
        "span_id": row["span_id"],
        "replica": row["replica"],
        "received": row["received_unix_ns"] / 1e9,
        "e2e_s": row["e2e_s"],
        "parts": [{"part": part, "seconds": seconds} for part, seconds in told.parts_s.items()],
        "delayed_by": [
            {
                "request_id": ids[each.row],
                "trace_id": traces[each.row],
                "tenant": _text(table["tenant"][each.row].as_py()),
                "prompt_tokens_meanwhile": round(each.tokens),
                "cost_s": each.cost_s,
            }
            for each in told.delayed_by
        ],
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def question_of(metric: str, window: Window, baseline: tuple[int, int] | None) -> Question:
    """A question about a window; without a baseline, against the stretch just before."""
    span = Span(window.from_unix_ns, window.to_unix_ns)
    return Question(Metric(metric), span, span.before if baseline is None else Span(*baseline))
