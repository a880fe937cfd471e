"""Read one request: its row, its neighbours in the engine, and the state of its servers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from sqlalchemy import Engine, true

from diagnosis.inputs.arrow import REQUEST_COLUMNS, requests_of
from diagnosis.one_request.account import LatencyAccount, account
from store import queries
from store.joined.read import joined_request_of
from store.requests import lookup
from store.requests.latency_rank import LATENCIES, latency_ranks
from store.requests.neighbours import neighbours, place_of
from telemetry.joined_request import JoinedRequest
from telemetry.latency_rank import LatencyRank
from telemetry.requests import Outcome
from telemetry.window import Window

MAX_MATCHES: Final = lookup.MAX_MATCHES
"""Maximum number of requests that `find_requests` returns."""

_LIKE: Final = ("model", "route")
"""The labels of similar requests. A request is compared with requests that have the same values."""
_HALF_HOUR_NS: Final = 1_800 * 10**9
_APART_NS: Final = 16 * 10**9
"""Samples up to this time before and after the request are read. It is longer than the time between
two samples of an engine."""


@dataclass(frozen=True, slots=True)
class OneRequest:
    """The data of one request.

    Attributes:
        row: all columns.
        neighbours: the requests that were in its engine at the same time, and the request itself.
        place: the request's row in `neighbours`.
        samples, gpus: the samples of its engine and of its GPUs. None if it has no known engine.
        ranks: for each latency, its rank among similar requests of the hour.
        joined: the request, joined over its engines, or None if one engine did both prefill and
            decode.
    """

    row: Mapping[str, Any]
    neighbours: pa.Table
    place: int
    account: LatencyAccount
    samples: pa.Table | None
    gpus: pa.Table | None
    ranks: Mapping[str, LatencyRank]
    simulated: bool
    joined: JoinedRequest | None


def find_requests(engine: Engine, words: str) -> list[dict[str, Any]]:
    """The requests with this request id, trace id or TRACE/SPAN, the earliest first."""
    found: list[dict[str, Any]] = lookup.find_requests(engine, words).to_pylist()
    return found


def read_one_request(
    engine: Engine,
    trace_id: str,
    span_id: str,
    received_unix_ns: int | None,
    *,
    neighbour_columns: Sequence[str],
    engine_columns: Sequence[str],
    gpu_columns: Sequence[str],
) -> OneRequest | None:
    """Read one request, or return None if it is not stored.

    Args:
        received_unix_ns: when it was received, or None if unknown. The request is then searched.
        neighbour_columns: columns of `OneRequest.neighbours`, besides those of the account.
        engine_columns, gpu_columns: the columns of the samples.
    """
    row = _row(engine, trace_id, span_id, received_unix_ns)
    if row is None:
        return None
    received = int(row["received_unix_ns"])
    end = received + int(row["e2e_s"] * 1e9)
    table = neighbours(engine, row, [*REQUEST_COLUMNS, *neighbour_columns])
    place = place_of(table, row)
    around = Window(max(0, received - _APART_NS), end + _APART_NS)
    replica, number = row["replica"], row["engine"]
    samples = gpus = None
    if replica is not None and row["outcome"] != Outcome.REJECTED:
        its_engine = {"replica": replica, **({} if number is None else {"engine": str(number)})}
        samples = queries.sample_table(engine, around, equals=its_engine, columns=engine_columns)
        gpus = queries.gpu_table(engine, around, equals={"replica": replica}, columns=gpu_columns)
    return OneRequest(
        row,
        table,
        place,
        account(requests_of(table), place, table.num_rows),
        samples,
        gpus,
        _ranks(engine, row),
        queries.simulated(engine, Window(received, received + 1)),
        joined_request_of(engine, row),
    )


def _row(
    engine: Engine, trace_id: str, span_id: str, received_unix_ns: int | None
) -> dict[str, Any] | None:
    """The whole row of one request, or None if it is not stored. It may be a row that pages leave
    out, because a better source reported the same request."""
    if received_unix_ns is None:
        found = find_requests(engine, f"{trace_id}/{span_id}")
        if not found:
            return None
        received_unix_ns = int(found[0]["received_unix_ns"])
    rows: list[dict[str, Any]] = queries.request_table(
        engine,
        Window(received_unix_ns, received_unix_ns + 1),
        equals={"trace_id": trace_id, "span_id": span_id},
        limit=1,
        which=true(),
    ).to_pylist()
    return rows[0] if rows else None


def _ranks(engine: Engine, row: Mapping[str, Any]) -> dict[str, LatencyRank]:
    received = int(row["received_unix_ns"])
    values_s = {name: row[name] for name in LATENCIES if row[name] is not None}
    if not Outcome(row["outcome"]).answered:
        values_s.pop("e2e_s", None)
    if row["streamed"] is False:
        values_s.pop("ttft_s", None)
    hour = Window(max(0, received - _HALF_HOUR_NS), received + _HALF_HOUR_NS)
    return latency_ranks(engine, hour, {label: row[label] for label in _LIKE}, values_s)
