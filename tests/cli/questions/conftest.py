from pathlib import Path

import pytest

from tests.served_api import store_fleet


@pytest.fixture(scope="session")
def fleet_url(tmp_path_factory: pytest.TempPathFactory, run_folder: Path) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('fleet')}/tailspan.db"
    store_fleet(url, run_folder)
    return url


@pytest.fixture
def of_fleet(
    fleet_url: str, few_draws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """Make this process read the fleet's database, and predict with few resamples."""
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", fleet_url)
    monkeypatch.chdir(tmp_path)
    return fleet_url
