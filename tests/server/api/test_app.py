import json
import time

import pytest
from openapi_spec_validator import validate

from cli.questions.answer import answered
from tests.served_api import ServedApi, served
from tests.server.api.conftest import TOKEN


def test_the_result_equals_the_commands_output(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time())
    given = [("from", str(now - 900)), ("to", str(now)), ("by", "tenant")]
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", api.url)
    expected = answered("stats", given)
    found = api.get("stats", params=given)
    assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
    assert found.headers["cache-control"] == "no-store"
    assert found.text == expected.document()
    lines = api.get("stats", params=given, headers={"Accept": "application/x-ndjson"})
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.text == expected.text


def test_an_answer_is_one_list_or_one_object(api: ServedApi) -> None:
    for path, kind in (
        ("stats?last=15m&where=tenant%3Dacme&where=outcome%3Dstop", list),
        ("explain?last=5m&fast=true", dict),
    ):
        found = api.get(path)
        assert found.status_code == 200, found.text
        assert isinstance(found.json(), kind)
        assert found.json()


def test_a_wrong_parameter_is_a_problem_document(api: ServedApi) -> None:
    found = api.get("stats?last=soon")
    assert found.status_code == 400
    assert found.headers["content-type"] == "application/problem+json"
    problem = found.json()
    assert (problem["title"], problem["status"]) == ("Bad Request", 400)
    assert (problem["parameter"], problem["value"]) == ("last", "soon")
    assert "15m" in problem["allowed"]


def test_the_openapi_document_lists_the_questions(api: ServedApi) -> None:
    whole = api.get("openapi.json").json()
    validate(whole)
    assert {"/api/v1/stats", "/api/v1/slo"} <= set(whole["paths"])


def test_the_tokens_of_the_port_apply(guarded: ServedApi) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong-wrong-wrong-wrong"}):
        found = guarded.get("slo", headers=headers)
        assert found.status_code == 401
        assert found.headers["content-type"] == "application/problem+json"
        assert found.headers["www-authenticate"].startswith("Bearer")
        assert "token" in found.json()["detail"]
    found = guarded.get("slo", headers={"Authorization": f"Bearer {TOKEN}"})
    assert found.status_code == 200


def test_another_host_is_refused_with_a_problem_document(api: ServedApi) -> None:
    found = api.get("slo", headers={"Host": "evil.example"})
    assert (found.status_code, found.json()["status"]) == (403, 403)


def test_a_database_that_does_not_exist_is_reported(tmp_path: object) -> None:
    with served(f"sqlite:///{tmp_path}/none.db") as api:
        found = api.get("stats")
        assert found.status_code == 503
        assert "none.db" in json.loads(found.text)["detail"]
