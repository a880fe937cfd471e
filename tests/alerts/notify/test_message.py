import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.notify.message import (
    HeldBack,
    IncidentMessage,
    ReplicaHang,
    Transition,
    UnreadableMessageError,
    WindowPairBurnRates,
    dumps,
    loads,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
INSTANT = st.integers(0, 2**40)
WINDOWS = st.builds(
    WindowPairBurnRates, INSTANT, INSTANT, FINITE, st.none() | FINITE, st.none() | FINITE
)
MESSAGES = st.builds(
    IncidentMessage,
    transition=st.sampled_from(Transition),
    began_unix_s=INSTANT,
    fired_unix_s=INSTANT,
    as_of_unix_s=INSTANT,
    ended_unix_s=st.none() | INSTANT,
    burn=st.none() | FINITE,
    window_s=st.none() | INSTANT,
    bad=st.none() | INSTANT,
    events=st.none() | INSTANT,
    peak_burn=st.none() | FINITE,
    budget_left=st.none() | FINITE,
    budget_spent=st.none() | FINITE,
    exhausted_in_s=st.none() | FINITE,
    fired_by=st.tuples() | st.tuples(WINDOWS),
    held_back=st.tuples() | st.tuples(st.builds(HeldBack, WINDOWS, st.text())),
    likely_cause=st.none() | st.text(),
    link=st.none() | st.text(),
)


@given(MESSAGES)
def test_loads_undoes_dumps(message: IncidentMessage) -> None:
    assert loads(dumps(message)) == message


def test_a_message_in_the_outbox_of_an_earlier_version_is_read(
    message: Callable[..., IncidentMessage],
) -> None:
    earlier = dumps(message()).replace('"statement"', '"promise"')
    assert "promise" in earlier
    assert loads(earlier) == message()


def test_keys_of_a_newer_version_are_ignored(message: Callable[..., IncidentMessage]) -> None:
    newer = json.loads(dumps(message(hang=ReplicaHang("chat-0", "llama", 3, 75.0))))
    for part in (newer, newer["hang"], newer["fired_by"][0], newer["held_back"][0]["windows"]):
        part["added"] = 1
    assert loads(json.dumps(newer)) == message(hang=ReplicaHang("chat-0", "llama", 3, 75.0))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"transition": "paused"}'])
def test_a_message_of_an_incompatible_version_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableMessageError):
        loads(text)


def test_all_messages_of_an_incident_have_its_id(message: Callable[..., IncidentMessage]) -> None:
    firing, over = message(), message(transition=Transition.RESOLVED, ended_unix_s=1_790_000_900)
    assert firing.incident == over.incident == "chat/page/1790000000"
    assert message(test=True, fired_unix_s=5).incident == message(test=True).incident


def test_nan_and_infinity_are_refused(message: Callable[..., IncidentMessage]) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps(message(burn=float("nan")))
