from datetime import UTC
from typing import Any

import numpy as np
import pytest

from telemetry.window import Window
from tests.ui.conftest import make_start
from ui.kit import colours
from ui.views.root_cause import heatmap
from ui.views.root_cause.distribution import distribution
from ui.views.root_cause.server_state import StateLine

S = 10**9
START = 1_763_634_000
WHOLE = Window((START - 600) * S, (START + 600) * S)
VIEW = Window(START * S, (START + 600) * S)


def drawn(**about: Any) -> Any:
    at = np.linspace(WHOLE.from_unix_ns, WHOLE.to_unix_ns - S, 100).astype(np.int64)
    found = distribution(at, np.geomspace(0.01, 3.0, 100), WHOLE.from_unix_ns, WHOLE.to_unix_ns)
    assert found is not None
    line = StateLine("waiting", "requests waiting", np.ones(found.bins.count), str)
    given: dict[str, Any] = {
        "name": "TTFT",
        "window": VIEW,
        "whole": WHOLE,
        "baseline": Window(START * S, (START + 200) * S),
        "onset_unix_ns": None,
        "starts": (),
        "thresholds_s": [],
        "zone": UTC,
        "ink": colours.LIGHT,
    }
    return heatmap.figure(found, [line], **{**given, **about})


def test_requests_and_servers_share_one_axis() -> None:
    figure = drawn()
    heatmap, unseen, waiting = figure.data
    assert heatmap.type == "heatmap"
    assert list(unseen.x) == list(heatmap.x) == list(waiting.x)
    assert [each.text for each in figure.layout.annotations] == [
        *("waiting", "UTC", "baseline", "selected range starts"),
    ]


def test_onset_starts_and_targets_are_marked() -> None:
    start = make_start("<b>r0</b>", (START + 60) * S)
    figure = drawn(onset_unix_ns=(START + 30) * S, starts=[start], thresholds_s=[0.5])
    marks = [trace for trace in figure.data if trace.name == "starts"]
    assert len(marks) == 1
    assert "<b>" not in str(marks[0].customdata)
    assert "increase begins" in [each.text for each in figure.layout.annotations]
    assert 0.5 in [shape.y0 for shape in figure.layout.shapes]
    assert not [trace for trace in drawn().data if trace.name == "starts"]


@pytest.mark.parametrize(("at_s", "side"), [(START + 30, "left"), (START + 590, "right")])
def test_a_mark_is_labelled_if_there_is_space(at_s: int, side: str) -> None:
    named = drawn(onset_unix_ns=at_s * S).layout.annotations
    assert [each.xanchor for each in named if each.text == "increase begins"] == [side]


def test_the_drawn_part_of_the_baseline_is_shaded() -> None:
    figure = drawn()
    assert "baseline" in {each.text for each in figure.layout.annotations}
    elsewhere = drawn(baseline=Window(0, S))
    assert "baseline" not in {each.text for each in elsewhere.layout.annotations}
