"""Read the Request page's data. It is cached for a minute, because neighbours may still arrive."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st
from sqlalchemy import Engine

from analysis.access.audit_log import Interface, audit_log
from diagnosis.inputs.arrow import REQUEST_COLUMNS, requests_of
from diagnosis.one_request.account import LatencyAccount, account
from store.joined.read import joined_request_of
from store.queries import (
    gpu_table,
    newest_request_unix_ns,
    oldest_request_unix_ns,
    sample_table,
    simulated,
)
from store.requests.latency_rank import LATENCIES, LatencyRank, latency_ranks
from store.requests.lookup import find_requests
from store.requests.neighbours import neighbours, place_of
from telemetry.joined_request import JoinedRequest
from telemetry.requests import Outcome
from telemetry.window import Window
from ui.frame.read_cache import shared
from ui.kit import store_reads
from ui.kit.request_key import RequestKey
from ui.kit.store_reads import store_errors
from ui.sign_in import gate
from ui.views.request import engine_state
from ui.views.request.engine_state import TimeSeries
from ui.views.request.neighbours import COLUMNS as NEIGHBOUR_COLUMNS
from ui.views.request.neighbours import Neighbours, neighbours_of

LIKE: Final = ("model", "route")
"""The labels of similar requests. A request is compared with requests that have the same values."""
_RECORDED: Final = "recorded_request"
"""Session key: the last request that was written to the audit log."""
CACHE_NS: Final = 60 * 10**9
HALF_HOUR_NS: Final = 1_800 * 10**9
APART_NS: Final = 16 * 10**9
"""Samples up to this time before and after the request are read. It is longer than the time between
two samples of an engine."""


@dataclass(frozen=True, slots=True)
class RequestDetails:
    """The data of one request."""

    row: Mapping[str, Any]
    account: LatencyAccount
    neighbours: Neighbours
    engine: Sequence[TimeSeries]
    gpus: Sequence[TimeSeries]
    throttled: str | None
    ranks: Mapping[str, LatencyRank]
    simulated: bool
    joined: JoinedRequest | None = None
    """The request, joined over its engines, or None if one engine did both prefill and decode."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The times of the oldest and the newest stored request."""

    oldest_unix_ns: int | None
    newest_unix_ns: int | None


def candidates(engine: Engine, request_id: str) -> list[dict[str, Any]]:
    """The requests with this request id, trace id or TRACE/SPAN. The earliest request is first."""
    found: list[dict[str, Any]] = []
    with suppress(LookupError), store_errors():
        found = shared(
            engine, ("named", request_id, _minute()), lambda: _candidates(engine, request_id)
        )
    if len(found) != 1:  # `read_request` records a single match
        _record(request_id, found=bool(found))
    return found


def read_request(engine: Engine, key: RequestKey) -> RequestDetails | None:
    """Read one request, or return None if it is not stored."""
    found = None
    with suppress(LookupError), store_errors():
        found = shared(engine, ("request", key, _minute()), lambda: _read(engine, key))
    _record(f"{key.trace_id}/{key.span_id}", found=found is not None)
    return found


def _record(request: str, *, found: bool) -> None:
    """Record in the audit log that the reader opened, or tried to open, a request.

    `request` is the request's TRACE/SPAN, or the id that the reader entered. Each opening is
    recorded once."""
    log, opening = audit_log(), (request, found)
    if log is not None and st.session_state.get(_RECORDED) != opening:
        st.session_state[_RECORDED] = opening
        log.read(Interface.PAGE, gate.readers_name(), request, found=found)


def missing(engine: Engine) -> Missing:
    """Read the time range of the stored requests."""
    with store_errors():
        return Missing(oldest_request_unix_ns(engine), newest_request_unix_ns(engine))


def _minute() -> int:
    return time.time_ns() // CACHE_NS


def _candidates(engine: Engine, request_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = find_requests(engine, request_id).to_pylist()
    if not found:  # not cached: the request may arrive at any moment
        raise LookupError(request_id)
    return found


def _read(engine: Engine, key: RequestKey) -> RequestDetails:
    row = store_reads.one(engine, key)
    if row is None:
        raise LookupError(str(key))
    received = int(row["received_unix_ns"])
    end = received + int(row["e2e_s"] * 1e9)
    table = neighbours(engine, row, [*REQUEST_COLUMNS, *NEIGHBOUR_COLUMNS])
    place = place_of(table, row)
    its_account = account(requests_of(table), place, table.num_rows)
    around = Window(max(0, received - APART_NS), end + APART_NS)
    replica, number = row["replica"], row["engine"]
    engine_series: list[TimeSeries] = []
    gpu_series: list[TimeSeries] = []
    throttled = None
    if replica is not None and row["outcome"] != Outcome.REJECTED:
        its_engine = {"replica": replica, **({} if number is None else {"engine": str(number)})}
        samples = sample_table(
            engine, around, equals=its_engine, columns=engine_state.ENGINE_COLUMNS
        )
        gpus = gpu_table(
            engine, around, equals={"replica": replica}, columns=engine_state.GPU_COLUMNS
        )
        engine_series = engine_state.engine_series(samples, received)
        gpu_series = engine_state.gpu_series(gpus, received)
        throttled = engine_state.throttled(gpus, received, end)
    return RequestDetails(
        row,
        its_account,
        neighbours_of(table, place, its_account),
        engine_series,
        gpu_series,
        throttled,
        _ranks(engine, row),
        simulated(engine, Window(received, received + 1)),
        joined_request_of(engine, row),
    )


def _ranks(engine: Engine, row: Mapping[str, Any]) -> dict[str, LatencyRank]:
    received = int(row["received_unix_ns"])
    values_s = {name: row[name] for name in LATENCIES if row[name] is not None}
    if not Outcome(row["outcome"]).answered:
        values_s.pop("e2e_s", None)
    if row["streamed"] is False:
        values_s.pop("ttft_s", None)
    hour = Window(max(0, received - HALF_HOUR_NS), received + HALF_HOUR_NS)
    return latency_ranks(engine, hour, {label: row[label] for label in LIKE}, values_s)
