from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from collector.listen.bearer_tokens import BearerTokens
from tests.served_api import ServedApi, served, store_fleet

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="session")
def fleet_url(tmp_path_factory: pytest.TempPathFactory, run_folder: Path) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('fleet')}/tailspan.db"
    store_fleet(url, run_folder)
    return url


@pytest.fixture(scope="module")
def guarded(fleet_url: str) -> Iterator[ServedApi]:
    """Return an API that requires a token."""
    with served(fleet_url, tokens=BearerTokens([TOKEN], "the test")) as running:
        yield running


@pytest.fixture(scope="module")
def api(guarded: ServedApi) -> ServedApi:
    """Return the same API, for requests with the token."""
    return replace(guarded, token=TOKEN)
