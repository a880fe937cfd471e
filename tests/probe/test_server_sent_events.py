from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.errors import ProbeFailure
from probe.server_sent_events import MAX_EVENT_BYTES, ServerSentEvents

STREAM = (
    b': comment\n\nevent: a\ndata: {"x": 1}\n\ndata: one\r\ndata: two\r\n\r\n'
    b"data:{}\r\rid: 7\nretry: 3\n\ndata: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_do_not_depend_on_how_the_bytes_arrive(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    decoder = ServerSentEvents()
    events = [event for start, end in pairwise(places) for event in decoder.feed(STREAM[start:end])]
    assert [(each.name, each.data, each.text) for each in events] == [
        ("a", {"x": 1}, '{"x": 1}'),
        ("", None, "one\ntwo"),
        ("", {}, "{}"),
        ("", None, "[DONE]"),
    ]


@pytest.mark.parametrize("data", [b"data: x", b"x" * 1000, b"data: y\n"])
def test_an_endless_event_is_refused(data: bytes) -> None:
    decoder = ServerSentEvents()

    def feed() -> None:
        for _ in range(2 * MAX_EVENT_BYTES // len(data)):
            decoder.feed(data)

    with pytest.raises(ProbeFailure, match="an event has more than"):
        feed()


def test_deep_nesting_is_not_json() -> None:
    (event,) = ServerSentEvents().feed(b"data: " + b"[" * 100_000 + b"\n\n")
    assert event.data is None
