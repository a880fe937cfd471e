from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.evaluation.counting import read_tally, store_tally
from alerts.objectives import Goodput
from alerts.openslo.reader import OBJECTIVES, load
from analysis.blind_objectives import blind_reason
from store.database import open_database
from store.writer import Writer
from telemetry.requests import Outcome, RequestTimeline

(CHAT,) = load([OBJECTIVES]).objectives
START_S = 1_763_634_000
AT_S = START_S + 3_600
WHOLE: dict[str, object] = {"streamed": True, "ttft_s": 0.2, "output_tokens": 1}


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"streamed": True}, None),
        ({"streamed": None}, "none_selected"),
        ({"streamed": True, "ttft_s": None}, "unknown"),
        ({"streamed": True, "outcome": Outcome.REJECTED, "http_status": 400}, None),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_the_reason_is_that_of_the_last_hour(
    tmp_path: Path,
    request_row: Callable[..., RequestTimeline],
    about: dict[str, object],
    reason: str | None,
    kept: bool,
) -> None:
    """Stored counts and a new count give the same reason."""
    engine = open_database(f"sqlite:///{tmp_path}/t.db")
    before = [
        request_row(n, received_unix_ns=(START_S - 60 * n) * 10**9, **WHOLE) for n in range(1, 200)
    ]
    now = [
        request_row(200 + n, received_unix_ns=(START_S + 10 * n) * 10**9, **{**WHOLE, **about})
        for n in range(300)
    ]
    with Writer(engine) as writer:
        writer.submit([*before, *now], []).result(10)
    assert isinstance(CHAT.indicator, Goodput)
    if kept:
        store_tally(engine, CHAT.indicator, AT_S + 3_600)
    for instants in (None, {AT_S - 3_600, AT_S - 86_400}):
        tally = read_tally(engine, CHAT.indicator, AT_S - 86_400, AT_S, instants=instants)
        assert blind_reason(engine, CHAT, [tally], AT_S) == reason
        quiet = replace(CHAT, alert_when_no_data=False)
        assert blind_reason(engine, quiet, [tally], AT_S) is None
    engine.dispose()
