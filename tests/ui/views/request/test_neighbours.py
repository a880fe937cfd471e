from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from diagnosis.inputs.arrow import requests_of
from diagnosis.one_request.account import account
from ui.views.request import neighbours
from ui.views.request.neighbours import Neighbours

S = 1_000_000_000
START_NS = 1_763_600_000 * S
Rows = Callable[..., pa.Table]
Request = Callable[..., Any]


def found(request_rows: Rows, requests: list[Any]) -> Neighbours:
    table = request_rows(requests)
    place = table["request_id"].to_pylist().index(requests[0].request_id)
    return neighbours.neighbours_of(
        table, place, account(requests_of(table), place, table.num_rows)
    )


def victim(request: Request, **changes: Any) -> Any:
    """Return a request of 2 s that other requests' prefills delayed by 0.6 s."""
    return request(
        0,
        **{
            "received_unix_ns": START_NS,
            "frontend_s": 0.0,
            "queue_s": 0.0,
            "prefill_s": 1.0,
            "decode_s": 1.0,
            "delivery_s": 0.0,
            "prefill_own_s": 0.4,
            "prefill_others_prefill_s": 0.6,
            **changes,
        },
    )


def other(request: Request, number: int, at_s: float, **changes: Any) -> Any:
    return request(
        number,
        **{
            "received_unix_ns": START_NS + int(at_s * S),
            "frontend_s": 0.0,
            "queue_s": 0.0,
            "prefill_s": 0.5,
            "decode_s": 1.0,
            "delivery_s": 0.0,
            "cached_tokens": 0,
            **changes,
        },
    )


def test_the_costliest_neighbour_comes_first(request_rows: Rows, one_request: Request) -> None:
    reported = found(
        request_rows,
        [
            victim(one_request),
            other(one_request, 1, 0.1, prompt_tokens=1000),
            other(one_request, 2, 0.2, prompt_tokens=9000, tenant="acme"),
            other(one_request, 3, 1.5, prompt_tokens=9000),
        ],
    )
    assert [each.name for each in reported.drawn] == [
        f"chatcmpl-{number:08x}" for number in (2, 1, 3)
    ]
    assert [each.cost_s for each in reported.drawn] == pytest.approx([0.54, 0.06, 0.0])
    assert reported.cost_s == pytest.approx(0.6)
    assert reported.number == 3
    assert "3 other requests shared its engine; the prefills of 2 of them delayed it by 600 ms" in (
        neighbours.sentence(reported)
    )


def test_neighbours_are_drawn_on_the_requests_time_axis(
    request_rows: Rows, one_request: Request
) -> None:
    reported = found(
        request_rows,
        [
            victim(one_request),
            other(one_request, 1, -0.25),
            other(one_request, 2, 1.75),
            other(one_request, 3, -1.0),
            other(one_request, 4, 0.5, prefill_s=None, decode_s=None, e2e_s=0.2),
        ],
    )
    by_name = {int(each.name[-2:], 16): each for each in reported.drawn}
    assert (by_name[1].prefill_from_s, by_name[1].prefill_to_s) == pytest.approx((0.0, 0.25))
    assert (by_name[2].from_s, by_name[2].to_s) == pytest.approx((1.75, 2.0))
    assert by_name[3].prefill_from_s is None
    assert by_name[4].prefill_from_s is None
    for each in reported.drawn:
        assert 0.0 <= each.from_s <= each.to_s <= 2.0


def test_a_large_batch_is_drawn_in_part(request_rows: Rows, one_request: Request) -> None:
    rows = [other(one_request, number, 0.001 * number) for number in range(1, 41)]
    reported = found(request_rows, [victim(one_request), *rows])
    assert (reported.number, len(reported.drawn)) == (40, neighbours.MAX_DRAWN)
    assert f"The chart shows {neighbours.MAX_DRAWN}" in neighbours.sentence(reported)


def test_a_request_without_neighbours_is_noted(request_rows: Rows, one_request: Request) -> None:
    reported = found(request_rows, [victim(one_request)])
    assert neighbours.sentence(reported) == "No other request shared its engine."
    quiet = found(
        request_rows,
        [victim(one_request, prefill_others_prefill_s=0.0), other(one_request, 1, 0.5)],
    )
    assert neighbours.sentence(quiet) == (
        "1 other request shared its engine; no delay by their prefills was recorded."
    )
