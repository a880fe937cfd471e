import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from analysis.label_values import label_values
from analysis.over_time import percentiles, phases, rolled
from analysis.over_time.columns import floats, instants
from store.database import open_database
from store.queries import request_table
from store.retention import delete_older
from store.rollups.bucket_builder import build_marked
from telemetry.requests import LATENCIES
from telemetry.window import Window
from tests.ui.conftest import fill, make_fleet
from ui.kit.slowest import slowest
from ui.views.requests import words
from ui.views.requests.read import read_requests

S = 1_000_000_000
START_S = 1_763_596_800
WINDOW = Window(START_S * S, (START_S + 1_800) * S)


@pytest.fixture(scope="module")
def rolled_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with half an hour of requests and their rollups."""
    path = tmp_path_factory.mktemp("rolled-up") / "tailspan.db"
    url = f"sqlite:///{path}"
    fill(url, *make_fleet(3_000, START_S * S, 1_800))
    engine = open_database(url)
    build_marked(engine, START_S + 86_400)
    engine.dispose()
    return path


@pytest.fixture
def engine(rolled_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Return a copy of the database. A page reads at most 100 of its requests."""
    shutil.copy(rolled_up, tmp_path / "tailspan.db")
    engine = open_database(f"sqlite:///{tmp_path}/tailspan.db")
    monkeypatch.setattr(rolled, "MAX_READ", 100)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("equals", [{}, {"tenant": "acme"}, {"replica": "r2", "outcome": "stop"}])
def test_rollups_give_the_same_charts_as_requests(engine: Engine, equals: dict[str, str]) -> None:
    found = read_requests(engine, WINDOW, equals).rolled
    assert found is not None
    table = request_table(engine, WINDOW, equals=equals)
    index = found.bins.index(instants(table, "received_unix_ns"))
    assert found.requests == table.num_rows
    assert found.outcomes == words.outcomes(table)
    assert not found.simulated
    for latency in LATENCIES:
        exact = percentiles.per_bin(floats(table, latency), index, found.bins.count)
        reported = rolled.per_bin(engine, WINDOW, equals, latency, found.bins)
        assert reported.requests.tolist() == exact.requests.tolist()
        for name, series in exact.series.items():
            for line in ("value_s", "low_s", "high_s"):
                np.testing.assert_allclose(
                    getattr(reported.series[name], line), getattr(series, line), rtol=0.01
                )
    means, number = phases.mean_per_bin(phases.layers(table), index, found.bins.count)
    assert found.number.tolist() == number.tolist()
    np.testing.assert_allclose(found.means, means, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("latency", ["ttft_s", "e2e_s", "queue_s"])
def test_the_slowest_are_the_slowest_of_all(engine: Engine, latency: str) -> None:
    found = read_requests(engine, WINDOW, {}, latency).requests
    table = request_table(engine, WINDOW)
    wanted = [table["trace_id"][place].as_py() for place in slowest(table, latency)]
    assert [found["trace_id"][place].as_py() for place in slowest(found, latency)] == wanted
    assert found.num_rows < 3_000


def test_a_range_without_stored_requests_is_shown_from_rollups(engine: Engine) -> None:
    delete_older(engine, 86_400 * S, (START_S + 3 * 86_400) * S, pause=lambda: None)
    found = read_requests(engine, WINDOW, {})
    assert found.rolled is not None
    assert found.requests.num_rows == 0
    text = words.rolled_sentence(found.rolled, 1_800, {})
    assert "<b>3,000 requests</b>" in text
    assert "within 1 %" in text


def test_few_requests_are_read_one_by_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolled, "MAX_READ", 3_000)
    found = read_requests(engine, WINDOW, {})
    assert found.rolled is None
    assert found.requests.num_rows == 3_000


def test_filters_of_a_long_range_have_values(engine: Engine) -> None:
    long = Window((START_S - 40_000) * S, WINDOW.to_unix_ns)
    assert label_values(engine, long, "tenant") == ["acme", "blue", "corp", "delta"]
