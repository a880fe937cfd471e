from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from simulator.dataset import run
from store.database import open_database
from store.writer import Writer
from tests.analysis.counterfactual.longer_outputs import CONFIG


@pytest.fixture(scope="package")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    data = run(CONFIG)
    engine = open_database(f"sqlite:///{tmp_path_factory.mktemp('store') / 'tailspan.db'}")
    with Writer(engine) as writer:
        written = writer.submit(data.requests, data.samples, starts=data.starts, gpus=data.gpus)
        written.result(60)
    yield engine
    engine.dispose()
