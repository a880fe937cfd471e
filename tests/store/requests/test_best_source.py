from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from store.queries import label_values, request_count, request_table
from store.requests.network_time import networks
from telemetry.requests import Basis, RequestTimeline, Source
from telemetry.window import Window

Row = Callable[..., RequestTimeline]
Write = Callable[..., None]
START_NS = 1_763_634_000_000_000_000
WINDOW = Window(START_NS - 10**12, START_NS + 10**12)
NATIVE: dict[str, Any] = {"source": Source.NATIVE, "basis": Basis.ENGINE}
CLIENT: dict[str, Any] = {"source": Source.CLIENT, "basis": Basis.CLIENT}


def shown(engine: Engine, **equals: str) -> list[str]:
    table = request_table(engine, WINDOW, equals=equals, columns=["source"])
    assert request_count(engine, WINDOW, equals=equals) == table.num_rows
    return sorted(table["source"].to_pylist())


def network(engine: Engine) -> list[float | None]:
    return networks(engine, WINDOW, request_table(engine, WINDOW))


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_instrumentations_row_takes_precedence(
    engine: Engine, write: Write, request_row: Row, ours_first: bool
) -> None:
    reported = [
        request_row(1, request_id="chatcmpl-1"),
        request_row(2, request_id="chatcmpl-1", **NATIVE),
        request_row(3, request_id="chatcmpl-1", **CLIENT),
    ]
    for row in reported if ours_first else reversed(reported):
        write(row)
    assert shown(engine) == ["instrumentation"]
    assert label_values(engine, WINDOW, "source") == ["instrumentation"]


def test_engine_rows_come_second(engine: Engine, write: Write, request_row: Row) -> None:
    write(
        request_row(1, request_id="a", **NATIVE),
        request_row(2, request_id="a", **CLIENT),
        request_row(3, request_id="b", **CLIENT),
    )
    assert shown(engine) == ["client", "native"]


def test_requests_of_one_trace_differ(engine: Engine, write: Write, request_row: Row) -> None:
    """An agent calls two servers; only one has the instrumentation."""
    trace = {"trace_id": "ab" * 16}
    write(
        request_row(1, request_id="here", **trace),
        request_row(2, request_id="there", **trace, **NATIVE),
        request_row(3, request_id="elsewhere", **trace, **CLIENT),
    )
    assert shown(engine) == ["client", "instrumentation", "native"]


def test_rows_without_ids_join_by_trace(engine: Engine, write: Write, request_row: Row) -> None:
    """Older clients do not read the request id from the response."""
    trace = {"trace_id": "ab" * 16}
    write(
        request_row(1, **trace),
        request_row(2, request_id=None, **trace, **CLIENT),
        request_row(3, request_id=None, **CLIENT),
        request_row(4, request_id=None),
    )
    assert shown(engine) == ["client", "instrumentation", "instrumentation"]


def test_prompts_join_one_call(engine: Engine, write: Write, request_row: Row) -> None:
    """vLLM numbers the prompts of a call: cmpl-x-0, cmpl-x-1."""
    write(
        request_row(1, request_id="cmpl-x-0"),
        request_row(2, request_id="cmpl-x-1"),
        request_row(3, request_id="cmpl-x", **CLIENT),
        request_row(4, request_id="chatcmpl-y-0"),
        request_row(5, request_id="chatcmpl-y", **CLIENT),
    )
    assert shown(engine) == ["client"] + 3 * ["instrumentation"]


def test_network_is_client_minus_server(engine: Engine, write: Write, request_row: Row) -> None:
    write(
        request_row(1, ttft_s=0.5, e2e_s=1.0, streamed=True),
        request_row(1, span_id="f" * 16, ttft_s=0.52, e2e_s=1.5, **CLIENT),
        request_row(2, ttft_s=1.0, e2e_s=1.0, streamed=False),
        request_row(2, span_id="f" * 16, ttft_s=1.9, e2e_s=1.25, **CLIENT),
        request_row(3),
    )
    assert network(engine) == [pytest.approx(0.02), 0.25, None]


def test_a_client_without_ids_joins_once(engine: Engine, write: Write, request_row: Row) -> None:
    for number, calls in ((1, 1), (2, 2)):
        write(request_row(number, e2e_s=1.0))
        for call in range(calls):
            write(
                request_row(
                    number, span_id=f"{call:016x}a"[1:], request_id=None, e2e_s=1.5, **CLIENT
                )
            )
    assert network(engine) == [0.5, None]


def test_no_network_without_http_edge_or_below_zero(
    engine: Engine, write: Write, request_row: Row
) -> None:
    """Without the HTTP layer, the difference would include the front end."""
    write(
        request_row(1, e2e_s=1.0, **NATIVE),
        request_row(1, span_id="f" * 16, e2e_s=1.5, **CLIENT),
        request_row(2, e2e_s=1.0),
        request_row(2, span_id="f" * 16, e2e_s=0.5, **CLIENT),
    )
    assert network(engine) == [None, None]


def test_client_clocks_may_be_wrong(engine: Engine, write: Write, request_row: Row) -> None:
    """Request ids are matched up to an hour outside the window."""
    late = START_NS + 3_000 * 10**9
    write(
        request_row(1, e2e_s=1.0),
        request_row(1, span_id="f" * 16, e2e_s=1.5, received_unix_ns=late, **CLIENT),
    )
    assert network(engine) == [0.5]
    assert shown(engine) == ["instrumentation"]
