"""The OpenAPI document of the API. Source: OpenAPI Specification 3.1."""

from importlib.metadata import version
from typing import Any, Final

from cli.questions.declared import Parameter, QuestionCommand, questions
from server.api.app import BASE
from server.api.problem import MEDIA_TYPE as PROBLEM

_ERRORS: Final = {
    "400": "A parameter is malformed, unknown or repeated",
    "401": "The token is missing or wrong",
    "403": "The host, the origin or the token's role is not allowed",
    "414": "The query string is too long",
    "422": "The answer exceeds a limit of rows or of length",
    "500": "The server has a wrong setting or a defect",
    "503": "Too many questions, or the database cannot be read",
    "504": "The answer took too long",
}
_DESCRIPTION: Final = (
    "Read-only questions about the recorded requests. Each question has the name of a command of"
    " tailspan. Its parameters are the command's options, without the dashes. Its answer is what"
    " the command prints with --format json. If the command prints one object per line, the answer"
    " is an array of these objects."
)


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tailspan", "version": version("tailspan"), "description": _DESCRIPTION},
        "paths": {f"{BASE}/{name}": {"get": _get(each)} for name, each in questions().items()},
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _get(question: QuestionCommand) -> dict[str, Any]:
    whole: dict[str, Any] = {"type": "object"}
    content = {"application/json": {"schema": whole}}
    if question.lines:
        content["application/json"] = {"schema": {"type": "array", "items": whole}}
        content["application/x-ndjson"] = {"schema": {"type": "string"}}
    problem = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "operationId": question.name,
        "summary": question.summary,
        "description": question.meaning,
        "parameters": [_parameter(each) for each in question.parameters.values()],
        "responses": {
            "200": {
                "description": f"What tailspan {' '.join(question.words)} --format json prints",
                "content": content,
            },
            **{
                status: {"description": text, "content": problem}
                for status, text in _ERRORS.items()
            },
        },
    }


def _parameter(each: Parameter) -> dict[str, Any]:
    schema = dict(each.schema)
    return {
        "name": each.name,
        "in": "query",
        "description": each.meaning,
        "schema": {"type": "array", "items": schema} if each.repeated else schema,
    }


_PROBLEM: Final = {
    "type": "object",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What failed, what is allowed, how to fix it"},
        "parameter": {"type": "string", "description": "The wrong parameter"},
        "value": {"type": "string", "description": "Its value"},
        "allowed": {"type": "string", "description": "The allowed values"},
    },
}
