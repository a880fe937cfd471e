"""Tests of the actions that the page offers after a drag over a chart."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import streamlit as st

from telemetry.window import Window
from tests.ui.opening import Open, address, markup
from ui.frame import selection

S = 10**9
START = 1_763_634_000
LINK = {"page": "overview", "from": str(START), "to": str(START + 1_200)}
Database = Callable[..., str]


def test_a_dragged_box_is_a_time_range() -> None:
    """The times are in the chart's time zone. The reader may drag to the right or to the left."""
    zone = timezone(timedelta(hours=2))
    box = {"x": ["2025-11-20 12:25:00.4", "2025-11-20 12:20"], "y": [0.1, 1.0]}
    found = selection.dragged_over({"selection": {"box": [box]}}, zone)
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
def test_an_invalid_selection_changes_nothing(event: dict[str, Any]) -> None:
    assert selection.dragged_over(event, UTC) is None


def test_a_drag_changes_nothing_by_itself(
    page: Open, database: Database, incident: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = page(database(incident(START * S)), **LINK)
    box = {
        "x": [
            f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
            for at in (START + 700, START + 1_000)
        ]
    }
    draw = st.plotly_chart

    def drawn(_figure: Any, **about: Any) -> None:
        if about["key"] == "traffic":
            monkeypatch.setattr(st, "plotly_chart", draw)
            st.session_state["traffic"] = {"selection": {"box": [box]}}
            about["on_select"]()

    monkeypatch.setattr(st, "plotly_chart", drawn)
    dragged = test.run().run()
    assert not dragged.exception
    assert address(dragged) == LINK
    assert "Selected <b>10:31:40 to 10:36:40</b> (5 min):" in markup(dragged)
    dragged.button("offer_dismiss").click().run()
    assert "Selected" not in markup(dragged)
    assert address(dragged) == LINK


def test_each_offer_leads_to_its_view(page: Open, database: Database, incident: Any) -> None:
    url = database(incident(START * S))
    part = {"from": str(START + 700), "to": str(START + 1_000)}
    for button, wanted in (
        ("zoom", {"page": "overview", **part}),
        ("explain", {"page": "root-cause", **part}),
        ("list", {"page": "requests", **part}),
        ("baseline", {**LINK, "page": "root-cause", "baseline": "/".join(part.values())}),
    ):
        test = page(url, **LINK)
        dragged = Window((START + 700) * S, (START + 1_000) * S)
        test.session_state["dragged_range"] = test.session_state["view"], dragged
        test.run().button(f"offer_{button}").click().run()
        assert not test.exception
        assert address(test) == wanted
        assert "Selected" not in markup(test)
