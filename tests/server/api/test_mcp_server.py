"""Tests with a scripted client of the official SDK."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from collector.listen import log_rate_limit
from collector.listen.bearer_tokens import BearerTokens
from rig.program import tailspan_command
from server.api.limits import ApiLimits
from server.api.mcp_transports import PATH, McpHost
from server.api.worker_pool import WorkerPool
from server.endpoint_access import EndpointAccess
from server.explorer_launch import reading_environment

TOKEN = "a-token-of-this-test"
EXPLORER = "http://127.0.0.1:8501"
Script = Callable[[Client], Awaitable[Any]]


def over_stdio(url: str, folder: Path, script: Script) -> Any:
    command, *words = tailspan_command("mcp", "--explorer-url", EXPLORER, "--api-timeout=5m")
    environment = {"TAILSPAN_DATABASE_URL": url, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    server = StdioServerParameters(command=command, args=words, env=environment, cwd=folder)

    async def run() -> Any:
        async with Client(server) as client:
            return await script(client)

    return asyncio.run(run())


def over_http(url: str, script: Script) -> Any:
    """Serve streamable HTTP with a token, and run a script against it."""
    environment = {**reading_environment(url, (), None), "TAILSPAN_EXPLORER_URL": EXPLORER}

    async def run() -> Any:
        access = EndpointAccess(tokens=BearerTokens([TOKEN], "the test"))
        host = McpHost(WorkerPool(environment, ApiLimits(seconds=300)), "127.0.0.1", 0, access)
        async with host.serving():
            headers = {"Authorization": f"Bearer {TOKEN}"}
            address = f"http://127.0.0.1:{host.port}{PATH}"
            async with (
                httpx2.AsyncClient(headers=headers, timeout=300) as http,
                Client(streamable_http_client(address, http_client=http)) as client,
            ):
                return await script(client)

    return asyncio.run(run())


async def _answer(client: Client, tool: str, **given: Any) -> tuple[bool, dict[str, Any]]:
    found = await client.call_tool(tool, given)
    (content,) = found.content
    assert isinstance(content, TextContent)
    return bool(found.is_error), json.loads(content.text)


async def _on_call(client: Client) -> dict[str, Any]:
    """Ask whether something is wrong, why, for whom, and what would help."""
    tools = (await client.list_tools()).tools
    assert all(each.annotations and each.annotations.read_only_hint for each in tools)
    _, slo = await _answer(client, "slo")
    paging = [each["slo"] for each in slo["answer"] if each["incidents"]]
    _, why = await _answer(client, "explain", incident=paging[0], fast=True)
    _, who = await _answer(client, "stats", by="tenant", last="5m")
    _, slowest = await _answer(client, "requests", sort="-ttft_s", limit=2)
    return {
        "tools": [each.name for each in tools],
        "prompts": client.server_capabilities.prompts,
        "cause": why["answer"]["causes"][0],
        "page": why["explorer"],
        "most": who["answer"][0]["tenant"],
        "slowest": slowest["answer"],
    }


async def _mistakes(client: Client) -> list[tuple[bool, dict[str, Any]]]:
    return [
        await _answer(client, "stats", last="soon"),
        await _answer(client, "stats", since="15m"),
        await _answer(client, "stats", where=["tenant=no such tenant"]),
        await _answer(client, "requests", last="9000w", limit=3_000),
        await _answer(client, "explain", last="999999999w"),
        await _answer(client, "delete_requests"),
        await _answer(client, "requests", where=[["tenant=a"]]),
    ]


def _check_mistakes(found: list[tuple[bool, dict[str, Any]]]) -> None:
    (soon, since, empty, long, endless, delete, nested) = found
    assert soon[0]
    assert soon[1]["parameter"] == "last"
    assert since[0]
    assert since[1]["allowed"].startswith("last, from")
    assert not empty[0]
    assert empty[1]["answer"] == []
    assert "No requests received" in empty[1]["note"]
    assert not long[0]
    assert long[1]["answer"][-1]["omitted"] > 0
    assert not endless[0] or endless[1]["status"] in (400, 422)
    assert delete[0]
    assert "allowed: stats, explain" in delete[1]["detail"]
    assert nested[0]
    assert nested[1]["parameter"] == "where"


def _check_on_call(found: dict[str, Any]) -> None:
    answers = ["stats", "explain", "requests", "cost", "caches", "slo", "compare", "what_if"]
    answers += ["budget", "outside", "starts"]
    assert found["tools"] == answers
    assert found["prompts"] is None
    assert found["cause"]["id"] == "tenant_flood"
    assert found["page"].startswith(f"{EXPLORER}/?page=root-cause&incident=chat")
    assert found["most"] == "acme"
    assert len(found["slowest"]) == 2


def test_over_http_a_script_finds_the_cause_and_can_read_mistakes(fleet_url: str) -> None:
    async def ask(client: Client) -> tuple[dict[str, Any], Any]:
        return await _on_call(client), await _mistakes(client)

    cause, mistakes = over_http(fleet_url, ask)
    _check_on_call(cause)
    _check_mistakes(mistakes)


def test_over_stdio_a_tool_answers(fleet_url: str, tmp_path: Path) -> None:
    async def ask(client: Client) -> tuple[bool, dict[str, Any]]:
        return await _answer(client, "slo")

    failed, found = over_stdio(fleet_url, tmp_path, ask)
    assert not failed
    assert found["answer"][0]["slo"] == "chat"


def test_a_dead_database_is_a_result_that_a_model_can_read(tmp_path: Path) -> None:
    async def ask(client: Client) -> tuple[bool, dict[str, Any]]:
        return await _answer(client, "slo")

    failed, found = over_http(f"sqlite:///{tmp_path}/none.db", ask)
    assert failed
    assert found["status"] == 503
    assert "none.db" in found["detail"]


def test_http_requires_the_token_and_a_known_host(fleet_url: str) -> None:
    async def run() -> list[int]:
        access = EndpointAccess(tokens=BearerTokens([TOKEN], "the test"))
        pool = WorkerPool(reading_environment(fleet_url, (), None), ApiLimits())
        host = McpHost(pool, "127.0.0.1", 0, access)
        good = {"Authorization": f"Bearer {TOKEN}"}
        async with host.serving(), httpx.AsyncClient(timeout=20) as client:
            address = f"http://127.0.0.1:{host.port}{PATH}"
            found = []
            for headers in ({}, {"Authorization": "Bearer no-no-no-no-no-no-no"}):
                found.append((await client.post(address, headers=headers, json={})).status_code)
            wrong = {**good, "Host": "evil.example"}
            found.append((await client.post(address, headers=wrong, json={})).status_code)
            large = b"x" * 200_000
            found.append((await client.post(address, headers=good, content=large)).status_code)
            return found

    assert asyncio.run(run()) == [401, 401, 403, 413]


def test_malformed_messages_do_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rate_limit._LIMIT, "_seen", {})

    async def run() -> None:
        pool = WorkerPool(
            reading_environment(f"sqlite:///{tmp_path}/none.db", (), None), ApiLimits()
        )
        host = McpHost(pool, "127.0.0.1", 0, EndpointAccess())
        method = "notifications/cancelled"
        message = {"jsonrpc": "2.0", "method": method, "params": {"requestId": []}}
        accepted = {"Accept": "application/json, text/event-stream"}
        async with host.serving(), httpx.AsyncClient(timeout=20, headers=accepted) as client:
            for _ in range(3 * log_rate_limit.LINES):
                address = f"http://127.0.0.1:{host.port}{PATH}"
                assert (await client.post(address, json=message)).status_code == 202

    with caplog.at_level("WARNING"):
        asyncio.run(run())
    assert sum("malformed" in each.getMessage() for each in caplog.records) > 0
    assert len(caplog.records) <= log_rate_limit.LINES
