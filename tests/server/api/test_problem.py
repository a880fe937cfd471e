import asyncio

import httpx
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from server.api.problem import ProblemGate, problem


def _get(app: ASGIApp, path: str) -> httpx.Response:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(ProblemGate(app, "/api/"))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    return asyncio.run(get())


def test_members_without_a_value_are_omitted() -> None:
    assert problem(404, "nothing", parameter=None, value="") == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "nothing",
        "value": "",
    }


def test_a_plain_error_becomes_a_problem_document_with_its_headers() -> None:
    plain = PlainTextResponse("the token is not valid\n", 401, {"WWW-Authenticate": "Bearer"})
    found = _get(plain, "/api/v1/slo")
    assert found.json() == problem(401, "the token is not valid")
    assert found.headers["content-type"] == "application/problem+json"
    assert found.headers["www-authenticate"] == "Bearer"
    assert _get(plain, "/metrics").text == "the token is not valid\n"


def test_other_responses_are_not_changed() -> None:
    assert _get(PlainTextResponse("fine"), "/api/v1/slo").text == "fine"
    json = JSONResponse({"a": 1}, 500)
    assert _get(json, "/api/v1/slo").json() == {"a": 1}
    assert _get(Response(b"", 204), "/api/v1/slo").status_code == 204
