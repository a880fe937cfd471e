import io
import json
from typing import Any

import pytest

from cli.questions import worker

READER = {"who": "token 1", "grants": None}


def _answers(*messages: object) -> list[tuple[dict[str, Any], str]]:
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in messages)
    written = io.BytesIO()
    worker.serve(io.BytesIO(lines), written)
    written.seek(0)
    found = []
    while line := written.readline():
        head = json.loads(line)
        found.append((head, written.read(head["bytes"]).decode()))
    return found


def test_each_kind_of_message_is_answered(of_fleet: str) -> None:
    question = {
        "ask": "question",
        "name": "requests",
        "parameters": [["limit", "2"]],
        "reader": READER,
    }
    found = _answers(
        *({"ask": "openapi"}, {"ask": "tools"}, question, {**question, "lines": True}),
        {"ask": "tool", "name": "slo", "arguments": {}, "reader": READER},
    )
    assert [head["status"] for head, _ in found] == [200] * 5
    bodies = [body for _, body in found]
    assert json.loads(bodies[0])["openapi"] == "3.1.0"
    assert json.loads(bodies[1])[0]["name"] == "stats"
    assert [json.dumps(row) for row in json.loads(bodies[2])] == bodies[3].splitlines()
    assert found[3][0]["type"] == "application/x-ndjson"
    assert json.loads(bodies[4])["answer"][0]["slo"] == "chat"


def test_a_defect_is_an_error_without_data_and_the_next_message_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a prompt")

    monkeypatch.setattr(worker, "answered", fail)
    question = {"ask": "question", "name": "stats", "parameters": [], "reader": READER}
    first, second, third = _answers(question, {"ask": "?"}, {"ask": "tools"})
    assert first[0]["status"] == second[0]["status"] == 500
    assert first[0]["defect"].startswith("ZeroDivisionError in test_worker.py, line ")
    assert "a prompt" not in str(first)
    assert third[0]["status"] == 200


def test_a_message_without_a_reader_is_not_answered(of_fleet: str) -> None:
    question = {"ask": "question", "name": "requests", "parameters": [["limit", "2"]]}
    tool = {"ask": "tool", "name": "slo", "arguments": {}}
    grants = [{"tenants": ["nobody"], "models": None, "costs": True}]
    reader = {"who": "token 2", "grants": grants}
    found = _answers(question, tool, {**question, "reader": reader})
    assert [head["status"] for head, _ in found] == [500, 500, 200]
    assert json.loads(found[2][1]) == []
