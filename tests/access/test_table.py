import json

import pytest

from analysis.access.roles_file import Roles
from telemetry.access import Access
from tests.access.fleet import Fleet
from tests.access.questions import documented, others
from tests.access.scanning import leaks
from tests.access.table import COLUMNS, ENVIRONMENT, PAGE, answer_and_cell, rows, written

pytestmark = pytest.mark.timeout(600)
"""The first test of a run stores the fleet."""


@pytest.fixture(autouse=True)
def environment(fleet: Fleet, few_draws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(ENVIRONMENT, (fleet.url, str(fleet.objectives)), strict=True):
        monkeypatch.setenv(name, value)


def test_the_documented_table_is_what_the_roles_get(fleet: Fleet) -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = "".join(f"{row}\n" for row in rows(fleet))
    assert text == written(text, table), "run python -m tests.access.table"


@pytest.mark.parametrize("role", COLUMNS)
def test_no_other_answer_has_what_the_role_does_not_allow(
    fleet: Fleet, roles: Roles, role: str
) -> None:
    access = Access.of([roles.by_name[role].grant])
    for name, given in others(fleet):
        text, _ = answer_and_cell(name, given, access)
        assert not leaks(fleet, role, text, repr(given)), (name, given, text[:2_000])


def test_a_prediction_has_only_the_slos_whose_thresholds_a_role_may_compare(
    fleet: Fleet, roles: Roles
) -> None:
    """The role "model" may not see all requests of any of these SLOs."""
    given = documented(fleet)["`what-if`"][1]
    found = {}
    for role in ("sre", "model"):
        text, _ = answer_and_cell("what-if", given, Access.of([roles.by_name[role].grant]))
        found[role] = {each["slo"] for each in json.loads(text)["objectives"]}
    assert found["sre"] == {"chat", "grouped", "hiddenco-only", "mine-only"}
    assert found["model"] == {"chat", "grouped"}
