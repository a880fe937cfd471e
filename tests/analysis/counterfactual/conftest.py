from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from analysis.counterfactual import shares
from analysis.counterfactual.explain import with_replayed_shares
from analysis.explain import explain_question
from diagnosis.explanation import Explanation
from simulator.dataset import run
from store.database import open_database
from store.writer import Writer
from tests.analysis.counterfactual.longer_outputs import CONFIG, question


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares do not depend on the resampled baselines, only their intervals do."""
    monkeypatch.setattr(shares, "RESAMPLED", 2)


@pytest.fixture(scope="package")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    data = run(CONFIG)
    engine = open_database(f"sqlite:///{tmp_path_factory.mktemp('store') / 'tailspan.db'}")
    with Writer(engine) as writer:
        written = writer.submit(data.requests, data.samples, starts=data.starts, gpus=data.gpus)
        written.result(60)
    yield engine
    engine.dispose()


@pytest.fixture(scope="package")
def accounted(stored: Engine) -> Explanation:
    return explain_question(stored, question())


@pytest.fixture(scope="package")
def tested(stored: Engine, accounted: Explanation) -> Explanation:
    return with_replayed_shares(stored, accounted)
