"""Opens each page of the explorer, and links to hidden data, as each role."""

import json
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from streamlit.testing.v1 import AppTest

from alerts.secrets import Secret
from analysis.access.roles_file import Roles
from analysis.answer_process import ChildAnswer
from analysis.compare.deploys import Deploy
from analysis.compare.server_changes import ServerChange
from analysis.counterfactual import replay_process
from analysis.sign_in_file import SignIn
from telemetry.window import Window
from tests.access.fleet import Fleet
from tests.access.scanning import leaks
from tests.ui.opening import APP
from ui.frame.pages import PAGES

pytestmark = pytest.mark.timeout(600)
"""The first test of a run stores the fleet."""

GROUPS: Final = {
    "mine-without-costs": "mine-interns",
    "mine-and-model": "strict",
    "mine": "mine-engineers",
    "model": "model-team",
    "operator": "operators",
    "sre": "sre",
}
LIMITED: Final = ("mine-and-model", "model", "operator")


class Explorer:
    """The pages of the explorer, for a reader with a role."""

    def __init__(self, fleet: Fleet, roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
        self.claims: dict[str, Any] = {}
        sign_in = SignIn("https://id.example", "id", Secret("s"), "https://x.org", ("*",), 3_600)
        monkeypatch.setenv("TAILSPAN_DATABASE_URL", fleet.url)
        monkeypatch.setenv("TAILSPAN_OBJECTIVES", str(fleet.objectives))
        monkeypatch.setattr("ui.sign_in.gate.in_force", lambda: sign_in)
        monkeypatch.setattr("ui.sign_in.gate.roles_in_force", lambda: roles)
        monkeypatch.setattr("analysis.access.audit_log.roles_in_force", lambda: roles)
        monkeypatch.setattr("ui.sign_in.gate.claims_of_reader", lambda: self.claims)
        # a replay takes seconds, so only `test_a_replay_has_no_hidden_names` runs one
        none = ChildAnswer(problem="not replayed in this test")
        monkeypatch.setattr(replay_process, "answer_in_child", lambda *_: none)

    def sign_in(self, role: str, **more: Any) -> None:
        self.claims = {
            "is_logged_in": True,
            "iat": time.time(),
            "email": f"{role}@example.org",
            "groups": ["everybody", GROUPS.get(role, role)],
            **more,
        }

    def open(self, **query: str) -> str:
        """All data that is sent to the browser."""
        test = AppTest.from_file(str(APP), default_timeout=180)
        for name, value in query.items():
            test.query_params[name] = value
        test.run()
        assert not test.exception, query
        return everything(test)


def everything(test: AppTest) -> str:
    found = []

    def add(block: Any) -> None:
        for child in getattr(block, "children", {}).values():
            if getattr(child, "proto", None) is not None:
                found.append(str(child.proto))
            add(child)

    add(test._tree)
    return "\n".join(found)


@pytest.fixture
def explorer(
    fleet: Fleet, roles: Roles, few_draws: None, monkeypatch: pytest.MonkeyPatch
) -> Explorer:
    return Explorer(fleet, roles, monkeypatch)


def addresses(fleet: Fleet) -> list[dict[str, str]]:
    """The address of each page, and of links to data that some roles may not see."""
    past = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s)}
    flood = {"from": str(fleet.end_s - 300), "to": str(fleet.end_s)}
    one = next(each for each in fleet.requests if each.tenant == "hiddenco")
    pages = [{"page": each.key, **(past if each.of_a_range else {})} for each in PAGES]
    return [
        *pages,
        {"page": "overview", "last": "1h"},
        {"page": "overview", **flood, "tenant": "hiddenco"},
        {"page": "root-cause", **flood},
        {"page": "root-cause", **flood, "tenant": "mineco"},
        {"page": "root-cause", **flood, "tenant": "hiddenco"},
        {"page": "requests", **flood, "tenant": "hiddenco", "model": "secret-model"},
        {"page": "what-if", **flood, "change": "rate=1.1x"},
        {"page": "compare", **flood, "tenant": "hiddenco"},
        {"page": "cost", **past, "per": "tenant"},
        {"page": "fleet", **past, "replica": "secret-replica"},
        {"incident": "chat"},
        {"incident": "mine-only"},
        {"incident": "hiddenco-only"},
        {"incident": f'grouped{{tenant="hiddenco"}}@{fleet.end_s}'},
        {"page": "request", "request": fleet.key_of("hiddenco")},
        {"page": "request", "request": fleet.key_of("hiddenco", "secret-model")},
        {"page": "request", "request": fleet.key_of("mineco")},
        {"page": "request", "request": str(one.request_id)},
        {"page": "request", "request": one.trace_id},
    ]


@pytest.mark.parametrize("key", [*(each.key for each in PAGES), "incident"])
def test_no_page_shows_what_the_role_does_not_allow(
    explorer: Explorer, fleet: Fleet, key: str
) -> None:
    queries = [each for each in addresses(fleet) if each.get("page", "incident") == key]
    explorer.sign_in("sre")
    explorer.open(**queries[0])  # a reader of all data fills the caches
    for role in LIMITED:
        explorer.sign_in(role)
        for query in queries:
            shown = explorer.open(**query)
            assert not leaks(fleet, role, shown, f"{query}{role}"), (query, shown[:3_000])


def test_pages_show_what_a_role_allows(explorer: Explorer, fleet: Fleet) -> None:
    flood = {"from": str(fleet.end_s - 300), "to": str(fleet.end_s)}
    explorer.sign_in("sre")
    assert "hiddenco" in explorer.open(page="root-cause", **flood)
    explorer.sign_in("mine")
    shown = explorer.open(page="root-cause", **flood)
    assert "(other tenants)" in shown
    assert "Your role does not allow this page" in explorer.open(page="cost", **flood)
    assert "all tenants and models" in explorer.open(page="cost", **flood)
    assert "all tenants" in explorer.open(page="what-if", **flood)
    assert "mineco-request" in explorer.open(page="request", request=fleet.key_of("mineco"))
    assert "mine-only" in explorer.open(page="slos")
    explorer.sign_in("operator")
    assert "does not allow costs" in explorer.open(page="cost", **flood)


def test_an_slo_that_counts_hidden_requests_is_not_shown(explorer: Explorer, fleet: Fleet) -> None:
    past = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s)}
    explorer.sign_in("sre")
    everything_ = explorer.open(page="slos", **past)
    assert "5 SLOs" in everything_
    assert "compliance_chat" in everything_
    explorer.sign_in("mine")
    shown = explorer.open(page="slos", **past)
    assert "2 SLOs" in shown
    assert "compliance_mine-only" in shown
    assert "compliance_chat" not in shown
    link = explorer.open(page="root-cause", incident="chat")
    assert "one of these SLOs: grouped, mine-only" in link


def test_a_deploy_is_not_judged_from_a_part_of_the_requests(
    explorer: Explorer, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_ns = (fleet.end_s - 400) * 10**9
    deploy = Deploy(
        ServerChange("The configuration", at_ns, at_ns), Window(at_ns - 300 * 10**9, at_ns)
    )
    monkeypatch.setattr("ui.views.overview.page.latest_deploy", lambda *_: deploy)
    past = {"from": str(fleet.end_s - 880), "to": str(fleet.end_s)}  # no other test opens this
    explorer.sign_in("sre")
    assert "Since the deploy at" in explorer.open(page="overview", **past)
    explorer.sign_in("mine")
    shown = explorer.open(page="overview", **past)
    assert "Since the deploy at" not in shown
    assert "No comparison: a comparison needs the requests of all tenants" in shown


def test_a_link_to_a_hidden_request_shows_what_a_wrong_link_shows(
    explorer: Explorer, fleet: Fleet
) -> None:
    explorer.sign_in("mine")
    hidden, none = fleet.key_of("hiddenco"), "e" * 32 + "/" + "d" * 16
    shown = [
        explorer.open(page="request", request=key)
        .replace(quote(key, safe=""), "KEY")
        .replace(key, "KEY")
        for key in (hidden, none)
    ]
    assert shown[0] == shown[1]
    explorer.sign_in("sre")
    assert "hiddenco-request" in explorer.open(page="request", request=hidden)


def test_claims_without_a_role_show_nothing(explorer: Explorer, fleet: Fleet) -> None:
    """tests/analysis/access tests more malformed claims."""
    claims: list[tuple[Any, str]] = [
        (None, "has no role"),
        ("sre-but-not-really", "has no role"),
        ({"sre": "sre"}, "cannot be read"),
        ([f"group-{number}" for number in range(100_000)], "cannot be read"),
    ]
    for groups, expected in claims:
        explorer.sign_in("sre", groups=groups)
        shown = explorer.open(page="requests")
        assert expected in shown
        assert not leaks(fleet, "mine-and-model", shown, "sre")
        assert "mineco-request" not in shown


def test_opening_a_request_is_recorded(explorer: Explorer, fleet: Fleet, roles: Roles) -> None:
    assert roles.audit is not None
    roles.audit.unlink(missing_ok=True)
    explorer.sign_in("mine", email='mallory\n{"who": "jane"}\u202e@example.org')
    own, hidden = fleet.key_of("mineco"), fleet.key_of("hiddenco")
    trace, request_id = fleet.ids_of("hiddenco")[:2]
    for key in (own, hidden, trace, request_id):
        explorer.open(page="request", request=key)
    lines = Path(roles.audit).read_text(encoding="ascii").splitlines()
    found = [json.loads(each) for each in lines]
    assert [(each["request"], each["found"]) for each in found] == [
        (own, True),
        (hidden, False),
        (trace, False),
        (request_id, False),
    ]
    assert {each["interface"] for each in found} == {"page"}
    assert found[0]["who"].startswith("mallory\n")
    assert roles.audit.stat().st_mode & 0o777 == 0o600
