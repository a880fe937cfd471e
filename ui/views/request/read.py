"""Read the Request page's data. It is cached for a minute, because neighbours may still arrive."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st
from sqlalchemy import Engine

from analysis.access.audit_log import Interface, audit_log
from analysis.one_request import find_requests, read_one_request
from analysis.requests import KnownRequests, known_requests
from diagnosis.one_request.account import LatencyAccount
from telemetry.joined_request import JoinedRequest
from telemetry.latency_rank import LatencyRank
from ui.frame.read_cache import shared
from ui.kit.request_key import RequestKey
from ui.kit.unreadable import store_errors
from ui.sign_in import gate
from ui.views.request import engine_state
from ui.views.request.engine_state import TimeSeries
from ui.views.request.neighbours import COLUMNS as NEIGHBOUR_COLUMNS
from ui.views.request.neighbours import Neighbours, neighbours_of

_RECORDED: Final = "recorded_request"
"""Session key: the last request that was written to the audit log."""
CACHE_NS: Final = 60 * 10**9


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


def missing(engine: Engine) -> KnownRequests:
    """Read the time range of the stored requests."""
    with store_errors():
        return known_requests(engine)


def _minute() -> int:
    return time.time_ns() // CACHE_NS


def _candidates(engine: Engine, request_id: str) -> list[dict[str, Any]]:
    found = find_requests(engine, request_id)
    if not found:  # not cached: the request may arrive at any moment
        raise LookupError(request_id)
    return found


def _read(engine: Engine, key: RequestKey) -> RequestDetails:
    found = read_one_request(
        engine,
        key.trace_id,
        key.span_id,
        key.received_unix_ns,
        neighbour_columns=NEIGHBOUR_COLUMNS,
        engine_columns=engine_state.ENGINE_COLUMNS,
        gpu_columns=engine_state.GPU_COLUMNS,
    )
    if found is None:
        raise LookupError(str(key))
    row, samples, gpus = found.row, found.samples, found.gpus
    received = int(row["received_unix_ns"])
    end = received + int(row["e2e_s"] * 1e9)
    return RequestDetails(
        row,
        found.account,
        neighbours_of(found.neighbours, found.place, found.account),
        [] if samples is None else engine_state.engine_series(samples, received),
        [] if gpus is None else engine_state.gpu_series(gpus, received),
        None if gpus is None else engine_state.throttled(gpus, received, end),
        found.ranks,
        found.simulated,
        found.joined,
    )
