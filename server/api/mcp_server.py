"""The MCP server.

It offers the questions of the API as read-only tools for a language model. Source: Model Context
Protocol, specification, "Tools".
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from server.api.problem import problem
from server.api.readers import NotAReader, Readers
from server.api.worker_pool import TooLongError, WorkerEndedError, WorkerPool, WorkersBusyError

INSTRUCTIONS: Final = (
    "Tailspan records every request to vLLM servers. It answers questions about latency (TTFT: time"
    " to the first token; TPOT: time per further token; ITL max: the longest gap; E2E), causes,"
    " SLOs and cost. To find out whether something is wrong, call slo, then explain with the"
    " incident. Use stats to compare tenants, models or replicas, compare to judge a deploy or a"
    " canary, and what_if before you recommend a change. All tools only read. If there is too"
    " little data, report it; do not guess a cause."
)
_READS: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)


def mcp_server(pool: WorkerPool, readers: Readers | None = None) -> Server[Any]:
    """The server. Without `readers`, each token may read everything."""
    known = readers or Readers()

    tools: list[Tool] = []

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        if not tools:  # the list of tools does not change
            async with pool.reply_to({"ask": "tools"}) as reply:
                listed = json.loads(reply.body)
            tools[:] = [Tool(**each, annotations=_READS) for each in listed]
        return ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        request = context.request  # it is None over standard input
        try:
            reader = known.of(None if request is None else request.scope)
        except NotAReader as error:
            about = problem(HTTPStatus.FORBIDDEN, str(error))
            return _result(json.dumps(about), failed=True)
        arguments = params.arguments or {}
        message = {"ask": "tool", "name": params.name, "arguments": arguments, "reader": reader}
        return await _call_tool(pool, message)

    return Server(
        "tailspan",
        version=version("tailspan"),
        title="Tailspan",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _call_tool(pool: WorkerPool, message: Mapping[str, Any]) -> CallToolResult:
    """Return errors as a result, so that the model can read them."""
    try:
        async with pool.reply_to(message) as reply:
            failed = reply.head["status"] != HTTPStatus.OK
            return _result(reply.body.decode(), failed)
    except WorkersBusyError as error:
        about = problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    except TooLongError as error:
        about = problem(HTTPStatus.GATEWAY_TIMEOUT, str(error))
    except WorkerEndedError as error:
        about = problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
    return _result(json.dumps(about), failed=True)


def _result(text: str, failed: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
