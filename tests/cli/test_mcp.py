"""`tailspan mcp` in a separate process."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path
from signal import SIGTERM
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from cli.main import tailspan
from rig.program import PATIENCE_S, Program, tailspan_command
from store.database import open_database

TOKEN = "a-token-of-this-test"


async def _ask(address: str) -> tuple[list[str], str]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        tools = [each.name for each in (await client.list_tools()).tools]
        found: Any = await client.call_tool("stats", {"last": "15m"})
        return tools, found.content[0].text


def test_mcp_serves_http_until_it_is_stopped(tmp_path: Path, url: str) -> None:
    open_database(url).dispose()
    words = ("mcp", "--transport=http", "--port=0", "--database", url)
    with Program(
        tmp_path, *tailspan_command(*words), environ={"TAILSPAN_TOKENS": TOKEN}
    ) as running:
        tools, answer = asyncio.run(_ask(running.wait_for(r"The MCP server is at (\S+)")))
        assert tools[0] == "stats"
        assert "no requests yet" in answer
        assert running.ends(SIGTERM) == 0
        assert "Traceback" not in running.printed


def test_over_stdio_mcp_ends_with_its_input(tmp_path: Path, url: str) -> None:
    done = subprocess.run(
        tailspan_command("mcp", "--database", url),
        input=b"this is no JSON\n",
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ},
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--port=70000", "--port"),
        ("--explorer-url=ftp://x", "http://HOST:PORT"),
        ("--transport=sse", "'stdio', 'http'"),
        ("--api-timeout=1h", "1s to 10m"),
        ("--host=0.0.0.0", "set tokens (--token-file) and TLS"),
    ],
)
def test_wrong_options_are_refused(word: str, message: str) -> None:
    result = CliRunner().invoke(tailspan, ["mcp", "--transport=http", word])
    assert result.exit_code == 2
    assert message in result.output


def test_a_port_in_use_is_named_with_its_option(url: str, free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        words = ["mcp", "--transport=http", f"--port={free_port}", "--database", url]
        result = CliRunner().invoke(tailspan, words)
    assert result.exit_code == 2
    assert "choose another with --port" in result.output
