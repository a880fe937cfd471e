"""The engines that requests get if a slow engine is as in the baseline."""

from dataclasses import fields
from typing import Any

import numpy as np

from analysis.counterfactual.routing import with_usual_servers
from analysis.counterfactual.window_requests import WindowRequests


def requests(*engines: int, row: int = 0, at_s: float = 1.0) -> WindowRequests:
    """Return requests of which the number i of `engines` were served by engine i."""
    n = sum(engines)
    columns: dict[str, Any] = {each.name: np.zeros(n) for each in fields(WindowRequests)}
    columns |= {
        "engine": np.repeat(np.arange(len(engines)), engines),
        "row": np.full(n, row),
        "at_s": np.full(n, at_s),
    }
    return WindowRequests(**columns)


def shares(
    window: WindowRequests,
    baseline: WindowRequests,
    usual: list[int],
    models: tuple[str | None, ...],
    mixed: WindowRequests | None = None,
) -> list[float]:
    mixed = window if mixed is None else mixed
    found = with_usual_servers(mixed, window, baseline, models, usual, np.random.default_rng(1))
    counts = np.bincount(found, minlength=len(models))
    return [round(float(each), 2) for each in counts / counts.sum()]


def test_a_slow_engine_gets_its_usual_share_back() -> None:
    window, baseline = requests(2_000, 8_000), requests(5_000, 5_000)
    assert shares(window, baseline, [0], ("m", "m")) == [0.5, 0.5]
    assert shares(window, baseline, [], ("m", "m")) == [0.2, 0.8]


def test_the_other_engines_keep_their_proportions() -> None:
    window, baseline = requests(1_000, 6_000, 3_000), requests(4_000, 3_000, 3_000)
    assert shares(window, baseline, [0], ("m", "m", "m")) == [0.4, 0.4, 0.2]


def test_requests_stay_at_engines_of_their_model() -> None:
    """More requests to another model are not the router's doing."""
    window, baseline = requests(2_000, 2_000, 6_000), requests(2_000, 6_000, 2_000)
    assert shares(window, baseline, [0, 1, 2], ("m", "n", "n")) == [0.2, 0.6, 0.2]
    assert shares(window, baseline, [0, 1, 2], ("m", "n", "o")) == [0.2, 0.2, 0.6]


def test_an_engine_that_was_away_moves_nothing() -> None:
    window, baseline = requests(10_000, 0), requests(5_000, 5_000)
    assert shares(window, baseline, [0, 1], ("m", "m")) == [1.0, 0.0]


def test_requests_of_the_baseline_and_before_the_window_stay() -> None:
    window, baseline = requests(2_000, 8_000), requests(5_000, 5_000)
    for fixed in (requests(2_000, 8_000, row=-3), requests(2_000, 8_000, at_s=-5.0)):
        assert shares(window, baseline, [0], ("m", "m"), fixed) == [0.2, 0.8]
