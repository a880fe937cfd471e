"""The heatmap of the page that says why, and what is dragged over it."""

from datetime import UTC, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from store.queries import Window
from telemetry.starts import EngineStart, written
from ui.kit import colours
from ui.views.root_cause import heatmap
from ui.views.root_cause.distribution import distribution
from ui.views.root_cause.server_state import StateLine

S = 10**9
START = 1_763_634_000
WHOLE = Window((START - 600) * S, (START + 600) * S)
VIEW = Window(START * S, (START + 600) * S)


def drawn(**about: Any) -> Any:
    """The chart of a hundred requests."""
    at = np.linspace(WHOLE.from_unix_ns, WHOLE.to_unix_ns - S, 100).astype(np.int64)
    found = distribution(at, np.geomspace(0.01, 3.0, 100), WHOLE.from_unix_ns, WHOLE.to_unix_ns)
    assert found is not None
    line = StateLine("waiting", "requests waiting", np.ones(found.bins.count), str)
    given: dict[str, Any] = {
        "name": "TTFT",
        "window": VIEW,
        "whole": WHOLE,
        "onset_unix_ns": None,
        "starts": (),
        "promised_s": [],
        "zone": UTC,
        "ink": colours.LIGHT,
    }
    return heatmap.figure(found, [line], **{**given, **about})


def test_requests_and_servers_share_one_axis() -> None:
    """What is compared with, and what is in view, in one."""
    figure = drawn()
    heatmap, unseen, waiting = figure.data
    assert heatmap.type == "heatmap"
    assert list(unseen.x) == list(heatmap.x) == list(waiting.x)
    assert figure.layout.dragmode == "select"
    assert [each.text for each in figure.layout.annotations] == ["waiting", "selected range starts"]


def test_onset_starts_and_promises_are_marked() -> None:
    """At their instants and values; a start of long ago is not."""
    start = EngineStart(
        replica="<b>r0</b>",
        engine=0,
        process=1,
        at_unix_ns=(START + 60) * S,
        config="c",
        arguments=written({}),
    )
    figure = drawn(onset_unix_ns=(START + 30) * S, starts=[start], promised_s=[0.5])
    marks = [trace for trace in figure.data if trace.name == "starts"]
    assert len(marks) == 1
    assert "<b>" not in str(marks[0].customdata)
    assert "increase begins" in [each.text for each in figure.layout.annotations]
    assert 0.5 in [shape.y0 for shape in figure.layout.shapes]
    assert not [trace for trace in drawn().data if trace.name == "starts"]


@pytest.mark.parametrize(("at_s", "side"), [(START + 30, "left"), (START + 590, "right")])
def test_a_mark_is_named_where_there_is_room(at_s: int, side: str) -> None:
    """At the end of the axis on its left: words would leave the chart."""
    named = drawn(onset_unix_ns=at_s * S).layout.annotations
    assert [each.xanchor for each in named if each.text == "increase begins"] == [side]


def test_a_box_is_a_stretch_of_time() -> None:
    """In the zone that the chart was drawn in, from whichever end it was dragged."""
    zone = timezone(timedelta(hours=2))
    box = {"x": ["2025-11-20 12:25:00.4", "2025-11-20 12:20"], "y": [0.1, 1.0]}
    found = heatmap.dragged_over({"selection": {"box": [box]}}, zone)
    assert found == Window(START * S, (START + 300) * S)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"selection": {}},
        {"selection": {"box": []}},
        {"selection": {"box": [{"x": ["2025-11-20 12:25"]}]}},
        {"selection": {"box": [{"x": ["2025-11-20 12:25:00", "2025-11-20 12:25:03"]}]}},
        {"selection": {"box": [{"x": ["<script>", "2025-11-20 12:25:03"]}]}},
        {"selection": {"box": [{"x": [1, None]}]}},
    ],
)
def test_what_is_no_stretch_changes_nothing(event: dict[str, Any]) -> None:
    """A slip of the hand, or what no chart of ours would say."""
    assert heatmap.dragged_over(event, UTC) is None
