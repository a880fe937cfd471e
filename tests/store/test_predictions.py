from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from store import predictions as kept
from store.database import open_database
from store.predictions import Prediction, delete_old_predictions, predictions, store_prediction
from store.simulation_removal import delete_simulation

FIRST = Prediction(1_000, "replicas=2", 10, 20, '{"ttft": {}}', simulated=False)


@pytest.fixture
def engine(with_state: Engine) -> Engine:
    return with_state


def test_predictions_are_read_the_newest_first(engine: Engine) -> None:
    later = replace(FIRST, asked_unix_ns=2_000, change="max_num_seqs=64")
    assert predictions(engine) == []
    for row in (FIRST, later, later):
        store_prediction(engine, row)
    assert predictions(engine) == [later, FIRST]


def test_old_predictions_and_all_but_the_newest_are_deleted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_old_predictions(engine, 10_000)
    for asked in range(1, 7):
        store_prediction(engine, replace(FIRST, asked_unix_ns=asked))
    delete_old_predictions(engine, 3)
    assert [each.asked_unix_ns for each in predictions(engine)] == [6, 5, 4, 3]
    monkeypatch.setattr(kept, "MAX_STORED", 2)
    delete_old_predictions(engine, 0)
    assert [each.asked_unix_ns for each in predictions(engine)] == [6, 5]


def test_the_end_of_a_simulation_deletes_its_predictions(engine: Engine) -> None:
    store_prediction(engine, FIRST)
    store_prediction(engine, replace(FIRST, change="replicas=3", simulated=True))
    delete_simulation(engine)
    assert predictions(engine) == [FIRST]


def test_a_process_that_only_reads_may_keep_a_prediction(url: str, sqlite: Any) -> None:
    """`tailspan what-if` and the explorer open the collector's database."""
    reader = open_database(url, create=False)
    store_prediction(reader, FIRST)
    reader.dispose()
    assert predictions(sqlite) == [FIRST]
