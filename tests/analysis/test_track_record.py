from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import Engine

from analysis.compare.question import CompareError
from analysis.track_record import TrackRecord, track_record
from store.database import open_database
from store.predictions import Prediction, store_prediction
from store.replicas.engine_starts import in_force
from store.writer import Writer
from telemetry.starts import EngineStart
from telemetry.window import Window
from tests.analysis.compare.two_windows import AFTER, START_S, store_deploy

NOW_NS = AFTER.to_unix_ns
PREDICTED = Prediction(
    (START_S + 100) * 10**9,
    "max_num_seqs=64",
    *(0, 1),
    '{"ttft": {"p99": [0.2, -0.5, 1.0]}, "tpot": {"p99": [0.0, -0.01, 0.01]}}',
    simulated=True,
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    url = f"sqlite:///{tmp_path / 'tailspan.db'}"
    store_deploy(url)
    found = open_database(url)
    yield found
    found.dispose()


def test_the_track_record_counts_the_percentiles_of_predicted_deploys(engine: Engine) -> None:
    assert track_record(engine, NOW_NS) is None
    store_prediction(engine, replace(PREDICTED, change="max_num_seqs=32"))
    assert track_record(engine, NOW_NS) is None
    store_prediction(engine, replace(PREDICTED, asked_unix_ns=NOW_NS - 1))
    assert track_record(engine, NOW_NS) is None
    later = replace(PREDICTED, asked_unix_ns=NOW_NS + 3_600 * 10**9)
    store_prediction(engine, later)
    store_prediction(engine, PREDICTED)
    found = track_record(engine, NOW_NS)
    assert found == TrackRecord(deploys=1, percentiles=2, contained=1)
    assert found.sentence.startswith("The intervals of 1 of 2 predictions contained the measured")


def test_a_prediction_from_the_future_has_no_track_record(engine: Engine) -> None:
    """The clock of a machine was set back after the prediction."""
    store_prediction(engine, replace(PREDICTED, asked_unix_ns=NOW_NS + 3_600 * 10**9))
    assert track_record(engine, NOW_NS) is None


def test_the_range_after_a_deploy_ends_at_the_next_deploy(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_prediction(engine, PREDICTED)
    again = replace(
        newest_start(engine), config="f00d", at_unix_ns=(START_S + 1_500) * 10**9, process=9
    )
    with Writer(engine) as writer:
        writer.submit([], [], [again]).result(10)
    ends: list[int] = []

    def compared(_: Engine, __: object, after: Window, *about: object) -> NoReturn:
        ends.append(after.to_unix_ns)
        raise CompareError("not compared")

    monkeypatch.setattr("analysis.track_record.compare_deploy", compared)
    track_record(engine, (START_S + 7_200) * 10**9)
    assert ends
    assert max(ends) <= again.at_unix_ns


def newest_start(engine: Engine) -> EngineStart:
    return max(in_force(engine, AFTER.to_unix_ns), key=lambda each: each.at_unix_ns)
