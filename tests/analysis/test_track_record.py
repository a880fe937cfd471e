from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from analysis.track_record import TrackRecord, track_record
from store.database import open_database
from store.predictions import Prediction, keep_prediction
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
    keep_prediction(engine, replace(PREDICTED, change="max_num_seqs=32"))
    assert track_record(engine, NOW_NS) is None
    keep_prediction(engine, replace(PREDICTED, asked_unix_ns=NOW_NS - 1))
    assert track_record(engine, NOW_NS) is None
    keep_prediction(engine, PREDICTED)
    found = track_record(engine, NOW_NS)
    assert found == TrackRecord(deploys=1, percentiles=2, contained=1)
    assert found.sentence.startswith("1 of 2 predictions contained what came")
