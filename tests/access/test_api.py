"""Asks each question of the API and calls each MCP tool, as each role."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from analysis.access.roles_file import Roles
from cli.questions.declared import questions
from collector.listen.bearer_tokens import BearerTokens
from server.api.limits import ApiLimits
from server.api.mcp_transports import PATH, McpHost
from server.api.worker_pool import WorkerPool
from server.endpoint_access import EndpointAccess
from server.explorer_launch import reading_environment
from tests.access.fleet import MODEL, Fleet
from tests.access.questions import asked
from tests.access.scanning import ALLOWED, leaks
from tests.served_api import ServedApi, served

pytestmark = pytest.mark.timeout(600)
"""The first test of a run stores the fleet."""

FULL_TOKEN: Final = "a-token-for-everything"


def token_of(role: str) -> str:
    return f"a-token-of-the-role-{role}"


def tokens() -> BearerTokens:
    return BearerTokens([FULL_TOKEN, *(f"{token_of(role)}:{role}" for role in ALLOWED)], "the test")


@pytest.fixture(scope="module")
def api(fleet: Fleet, roles: Roles) -> Iterator[ServedApi]:
    with served(fleet.url, None, tokens(), roles, [fleet.objectives]) as running:
        yield running


def get(api: ServedApi, role: str, name: str, given: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {token_of(role)}"}
    return api.get(name, params=given, headers=headers)


def test_each_question_is_asked(fleet: Fleet) -> None:
    assert {name for name, _ in asked(fleet)} == set(questions())


@pytest.mark.parametrize("name", questions())
def test_no_answer_has_what_the_role_does_not_allow(
    api: ServedApi, fleet: Fleet, name: str
) -> None:
    """One role with each restriction is enough: `test_table` computes the answers of the others
    with the same code."""
    role = "mine-and-model"
    for given in (given for each, given in asked(fleet) if each == name):
        answer = get(api, role, name, given)
        assert answer.status_code < 500, (name, given, answer.text[:300])
        assert not leaks(fleet, role, answer.text, repr(given)), (name, given, answer.text[:2_000])


def test_the_answers_have_what_the_role_allows(api: ServedApi, fleet: Fleet) -> None:
    last = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s + 60)}
    for precision in ("exact", "sketch"):
        given = {"by": "tenant,model", "precision": precision, **last}
        groups = {
            role: {
                (each["tenant"], each["model"]) for each in get(api, role, "stats", given).json()
            }
            for role in ALLOWED
        }
        for role, (tenants, models, _) in ALLOWED.items():
            assert groups[role] == {(tenant, model) for tenant in tenants for model in models}
    counts = {
        role: sum(each["requests"] for each in get(api, role, "stats", last).json())
        for role in ("sre", "mine", "model")
    }
    mine = [each for each in fleet.requests if each.tenant == "mineco"]
    of_model = [each for each in fleet.requests if each.model == MODEL]
    assert counts == {"sre": len(fleet.requests), "mine": len(mine), "model": len(of_model)}
    rows = get(api, "mine", "requests", {"limit": "5", **last}).json()
    assert {each["tenant"] for each in rows} == {"mineco"}
    assert all(each["cost_usd"] for each in rows)
    rows = get(api, "mine-without-costs", "requests", {"limit": "5", **last}).json()
    assert [each["cost_usd"] for each in rows] == [None] * 5


def test_a_reader_sees_that_other_tenants_flood_without_their_names(
    api: ServedApi, fleet: Fleet
) -> None:
    given = {"from": str(fleet.end_s - 300), "to": str(fleet.end_s), "fast": "true"}
    cause = get(api, "mine", "explain", given).json()["causes"][0]
    assert (cause["id"], cause["where"]) == ("tenant_flood", {"tenant": "(other tenants)"})
    assert get(api, "sre", "explain", given).json()["causes"][0]["where"] == {"tenant": "hiddenco"}
    incident = get(api, "mine", "explain", {"incident": "mine-only", "fast": "true"}).json()
    assert incident["causes"][0]["where"] == {"tenant": "(other tenants)"}
    assert incident["stored"] is None
    assert get(api, "sre", "explain", {"incident": "mine-only"}).json()["stored"] is not None


def test_what_a_role_does_not_allow_looks_like_what_does_not_exist(
    api: ServedApi, fleet: Fleet
) -> None:
    none = "f" * 32 + "/" + "e" * 16
    for role, hidden in (
        ("mine", fleet.key_of("hiddenco")),
        ("model", fleet.key_of("mineco", "secret-model")),
    ):
        texts = [
            get(api, role, "explain", {"request": key}).text.replace(key, "KEY")
            for key in (hidden, none)
        ]
        assert texts[0] == texts[1]
        assert "parts" in get(api, "sre", "explain", {"request": hidden}).json()
    texts = [
        get(api, "mine", "explain", {"incident": name}).text.replace(name, "NAME")
        for name in ("hiddenco-only", "no-such-slo")
    ]
    assert texts[0] == texts[1]


def test_refusals_state_the_reason(api: ServedApi, fleet: Fleet) -> None:
    last = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s)}
    refused = {
        ("operator", "cost"): "costs",
        ("mine", "cost"): "all tenants and models",
        ("mine", "what-if"): "all tenants",
        ("mine", "compare"): "all tenants",
    }
    more = {
        "what-if": {"rate": "1.1x"},
        "compare": {"before-where": "lora=", "after-where": "lora=x"},
    }
    for (role, name), words in refused.items():
        answer = get(api, role, name, {**last, **more.get(name, {})})
        assert (answer.status_code, words in answer.json()["detail"]) == (403, True), answer.text


def test_a_token_with_a_role_reads_nothing_but_the_api(api: ServedApi) -> None:
    headers = {"Authorization": f"Bearer {token_of('sre')}"}
    answer = httpx2.get(f"{api.address}/metrics", headers=headers)
    assert (answer.status_code, "role sre" in answer.text) == (403, True)
    full = httpx2.get(f"{api.address}/metrics", headers={"Authorization": f"Bearer {FULL_TOKEN}"})
    assert full.status_code == 200


def test_with_roles_the_api_needs_a_token(fleet: Fleet, roles: Roles) -> None:
    with served(fleet.url, None, None, roles) as open_api:
        answer = open_api.get("stats")
    assert (answer.status_code, "token" in answer.json()["detail"]) == (403, True)


def test_no_tool_of_mcp_answers_what_the_role_does_not_allow(fleet: Fleet, roles: Roles) -> None:
    """The tools and the API share the code, so one question for each tool is enough."""
    role = "mine-without-costs"
    of_each = dict(reversed(asked(fleet)))
    environment = reading_environment(fleet.url, [fleet.objectives], None, None, roles.path)

    async def ask_all(client: Client) -> None:
        for name, given in of_each.items():
            given = {key: [each] if key == "where" else each for key, each in given.items()}
            found = await client.call_tool(name.replace("-", "_"), given)
            (content,) = found.content
            assert isinstance(content, TextContent)
            text = content.text
            assert not leaks(fleet, role, text, repr(given)), (name, given, text[:2_000])
            if name == "stats" and given.get("by") == "tenant,model":
                tenants = {each["tenant"] for each in json.loads(text)["answer"]}
                assert tenants == ALLOWED[role][0]

    async def run() -> None:
        access = EndpointAccess(tokens=tokens(), roles=roles)
        host = McpHost(WorkerPool(environment, ApiLimits(seconds=300)), "127.0.0.1", 0, access)
        async with host.serving():
            headers = {"Authorization": f"Bearer {token_of(role)}"}
            address = f"http://127.0.0.1:{host.port}{PATH}"
            async with (
                httpx2.AsyncClient(headers=headers, timeout=300) as http,
                Client(streamable_http_client(address, http_client=http)) as client,
            ):
                await ask_all(client)

    asyncio.run(run())


def test_reads_of_single_requests_are_recorded(api: ServedApi, fleet: Fleet, roles: Roles) -> None:
    assert roles.audit is not None
    roles.audit.unlink(missing_ok=True)
    own, hidden = fleet.key_of("mineco"), fleet.key_of("hiddenco")
    get(api, "mine", "explain", {"request": own})
    get(api, "mine", "explain", {"request": hidden})
    trace = hidden.partition("/")[0]
    last = {"from": str(fleet.end_s - 900), "to": str(fleet.end_s + 60)}
    get(api, "sre", "requests", {"where": f"trace_id={trace}", **last})
    get(api, "sre", "stats", last)
    found = [json.loads(each) for each in roles.audit.read_text().splitlines()]
    mine = f"token {2 + list(ALLOWED).index('mine')}, role mine"
    sre = f"token {2 + list(ALLOWED).index('sre')}, role sre"
    assert [(each["who"], each["request"], each["found"]) for each in found] == [
        (mine, own, True),
        (mine, hidden, False),
        (sre, trace, True),
    ]
    assert {each["interface"] for each in found} == {"api"}
