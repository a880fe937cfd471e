import pytest
from sqlalchemy import Engine


@pytest.fixture
def engine(with_state: Engine) -> Engine:
    """An empty database of each kind, with and without a separate state database."""
    return with_state
