from collections.abc import Iterator

import pytest

from tests.served_api import ServedApi, served, store_fleet


@pytest.fixture(scope="session")
def fleet_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('fleet')}/tailspan.db"
    store_fleet(url)
    return url


@pytest.fixture(scope="module")
def api(fleet_url: str) -> Iterator[ServedApi]:
    with served(fleet_url) as running:
        yield running
