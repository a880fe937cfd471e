import json

import jsonschema
import pytest

from cli.questions.declared import questions
from cli.questions.refusal import QuestionRefused
from cli.questions.short_answer import MAX_CHARACTERS
from cli.questions.tools import listed, used


def test_each_question_is_a_tool_with_a_schema_and_a_purpose() -> None:
    found = {each["name"]: each for each in listed()}
    assert list(found) == [name.replace("-", "_") for name in questions()]
    for each in found.values():
        jsonschema.Draft202012Validator.check_schema(each["input_schema"])
        assert len(each["description"]) > 100


def test_a_tools_answer_is_short_and_links_to_the_explorer(
    of_fleet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSPAN_EXPLORER_URL", "http://127.0.0.1:8501")
    text = used("requests", {"last": "20m", "limit": 2_000, "where": ["tenant=acme"]})
    assert len(text) <= MAX_CHARACTERS
    found = json.loads(text)
    *rows, note = found["answer"]
    assert len(rows) + note["omitted"] > len(rows)
    assert None not in rows[0].values()
    assert "prefix_ladder" not in rows[0]
    assert "page=requests" in found["explorer"]
    assert "tenant=acme" in found["explorer"]


def test_the_reason_for_an_empty_answer_is_a_note(of_fleet: str) -> None:
    found = json.loads(used("stats", {"where": "tenant=nemo"}))
    assert found["answer"] == []
    assert "No requests received" in found["note"]


@pytest.mark.parametrize(
    ("tool", "given", "detail"),
    [
        ("stats", {"where": {"tenant": "acme"}}, "wrong type; allowed: LABEL=VALUE"),
        ("stats", {"last": ["1m", "2m"]}, "2 times; allowed: once"),
        ("stats", {"tenant": "acme"}, "no parameter 'tenant'; allowed: last"),
        ("write", {}, "no tool 'write'; allowed: stats, explain"),
    ],
)
def test_wrong_arguments_are_refused(
    of_fleet: str, tool: str, given: dict[str, object], detail: str
) -> None:
    with pytest.raises(QuestionRefused, match=detail):
        used(tool, given)
