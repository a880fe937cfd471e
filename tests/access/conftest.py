import pytest

from analysis.access.roles_file import Roles, load_roles
from tests.access.fleet import Fleet, store
from tests.ui.opening import packages_are_scanned_once

__all__ = ["packages_are_scanned_once"]


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return store(tmp_path_factory.mktemp("roles"))


@pytest.fixture(scope="session")
def roles(fleet: Fleet) -> Roles:
    return load_roles(fleet.roles)
