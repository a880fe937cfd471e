import pytest

from tests.access.fleet import Fleet
from tests.access.table import ENVIRONMENT, PAGE, rows, written

pytestmark = pytest.mark.timeout(600)
"""The first test of a run stores the fleet."""


def test_the_documented_table_is_what_the_roles_get(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(ENVIRONMENT, (fleet.url, str(fleet.objectives)), strict=True):
        monkeypatch.setenv(name, value)
    text = PAGE.read_text(encoding="utf-8")
    table = "".join(f"{row}\n" for row in rows(fleet))
    assert text == written(text, table), "run python -m tests.access.table"
