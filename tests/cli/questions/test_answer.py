import json
import time

import pytest
from click.testing import CliRunner

from cli.main import tailspan
from cli.questions import answer, row_limit
from cli.questions.answer import answered
from cli.questions.declared import questions
from cli.questions.refusal import QuestionRefused

Pairs = list[tuple[str, str]]


def _range() -> Pairs:
    """Return the last 15 minutes as fixed times, so that two commands read the same range."""
    now = int(time.time())
    return [("from", str(now - 300)), ("to", str(now))]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("stats", [("by", "tenant,model")]),
        ("stats", [("where", "tenant=acme"), ("where", "outcome=stop"), ("precision", "exact")]),
        ("stats", [("where", "tenant=no such tenant")]),
        ("explain", [("metric", "ttft"), ("fast", "true")]),
        ("requests", [("limit", "7"), ("sort", "-e2e_s")]),
        ("cost", [("by", "tenant")]),
        ("what-if", [("set", "max_num_seqs=32")]),
    ],
)
def test_a_result_equals_the_output_of_the_command(of_fleet: str, name: str, given: Pairs) -> None:
    about = [*_range(), *given]
    options = [f"--{key}" if value == "true" else f"--{key}={value}" for key, value in about]
    printed = CliRunner().invoke(tailspan, [name, *options, "--format=json"])
    assert printed.exit_code in (0, 1)
    found = answered(name, about)
    assert found.text == printed.stdout
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert json.loads(found.document()) == (rows if questions()[name].lines else rows[0])


def test_the_status_of_objectives_equals_the_commands_output(of_fleet: str) -> None:
    at = str(int(time.time()))
    printed = CliRunner().invoke(tailspan, ["slo", "status", "--at", at, "--format=json"])
    assert printed.exit_code == 1
    here = [json.loads(line) for line in answered("slo", [("at", at)]).text.splitlines()]
    there = [json.loads(line) for line in printed.stdout.splitlines()]
    for each in (*here, *there):
        each.pop("no_data_for_s")  # the second command runs later
    assert here == there


def test_an_incident_and_a_request_are_explained(of_fleet: str) -> None:
    (found,) = json.loads(answered("slo", []).document())
    assert [alert["state"] for alert in found["alerts"]].count("firing") >= 1
    why = json.loads(answered("explain", [("incident", "chat"), ("fast", "true")]).document())
    assert (why["verdict"], why["causes"][0]["id"]) == ("incident", "tenant_flood")
    (row,) = json.loads(answered("requests", [("limit", "1")]).document())
    one = json.loads(answered("explain", [("request", row["request_id"])]).document())
    assert one["request_id"] == row["request_id"]


@pytest.mark.parametrize(
    ("name", "given", "parameter", "value", "allowed"),
    [
        ("stats", [("last", "soon")], "last", "soon", "15m"),
        ("stats", [("from", "yesterday")], "from", "yesterday", "ISO 8601"),
        ("stats", [("last", "1m"), ("from", "5")], "last", "1m", None),
        ("stats", [("by", "tenant,colour")], "by", "tenant,colour", "outcome"),
        ("stats", [("where", "tenant")], "where", "tenant", "LABEL=VALUE"),
        ("stats", [("where", "tenant=a"), ("where", "size=4")], "where", "size=4", "tenant"),
        ("explain", [("metric", "mood")], "metric", "mood", "ttft"),
        ("explain", [("baseline", "5")], "baseline", "5", "FROM/TO"),
        ("explain", [("incident", "nope")], "incident", "nope", "chat"),
        ("explain", [("incident", "chat"), ("last", "1h")], "incident", "chat", None),
        ("explain", [("fast", "1")], "fast", "1", "true, false"),
        ("requests", [("sort", "mood")], "sort", "mood", "e2e_s"),
        ("requests", [("limit", "0")], "limit", "0", "1 to 5,000"),
        ("requests", [("limit", "many")], "limit", "many", "a whole number"),
        ("slo", [("at", "noon")], "at", "noon", "ISO 8601"),
        ("what-if", [("sweep", "rate")], "sweep", "rate", "2 to 12"),
        ("what-if", [("rate", "2x"), ("sweep", "rate=9..1")], "sweep", "rate=9..1", None),
        ("what-if", [("set", "foo=1")], "set", "foo=1", "max_num_seqs"),
        ("what-if", [("set", "foo")], "set", "foo", "NAME=VALUE"),
        ("what-if", [("rate", "9y")], "rate", "9y", "a factor from"),
        ("what-if", [], None, None, None),
        ("explain", [("from", "20"), ("to", "10")], "from", "20", None),
        ("stats", [("colour", "red")], "colour", "red", "last, from, to, where, by, precision"),
        ("stats", [("database", "sqlite:////etc/x")], "database", "sqlite:////etc/x", "last"),
        ("stats", [("format", "text")], "format", "text", "last"),
        ("stats", [("help", "true")], "help", "true", "last"),
        ("what-if", [("trace", "/etc/passwd")], "trace", "/etc/passwd", "last"),
        ("stats", [("last", "1m"), ("last", "2m")], "last", None, "once"),
        ("stats", [("where", "x" * 1_001)], "where", "x" * 80 + "…", "at most 1,000 characters"),
        ("stats", [("where", "tenant=\x00")], "where", "tenant=\x00", "LABEL=VALUE"),
    ],
)
def test_a_wrong_parameter_is_reported_with_its_value_and_the_allowed_ones(
    of_fleet: str,
    name: str,
    given: Pairs,
    parameter: str | None,
    value: str | None,
    allowed: str | None,
) -> None:
    with pytest.raises(QuestionRefused) as caught:
        answered(name, given)
    problem = caught.value.problem
    assert problem["status"] == 400
    assert (problem.get("parameter"), problem.get("value")) == (parameter, value)
    assert allowed is None or allowed in problem["allowed"]
    assert not any(f"--{key}" in problem["detail"] for key in questions()[name].parameters)


def test_an_unknown_question_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        QuestionRefused, match="stats, explain, requests, cost, caches, slo, compare, what-if"
    ) as caught:
        answered("tell-me", [])
    assert caught.value.problem["status"] == 404


def test_more_parameters_than_allowed_are_refused() -> None:
    with pytest.raises(QuestionRefused, match="at most 64"):
        answered("stats", [("where", "tenant=a")] * 65)


@pytest.mark.parametrize(
    ("name", "given", "refused"),
    [
        ("explain", [], True),
        ("explain", [("baseline", "1763634000/1763634600")], True),
        ("stats", [("precision", "exact")], True),
        ("stats", [("by", "http_status")], True),
        ("stats", [], False),  # many requests are counted from rollups
        ("cost", [], False),
        ("requests", [("limit", "3")], False),
    ],
)
def test_a_range_with_too_many_requests_is_refused(
    of_fleet: str, monkeypatch: pytest.MonkeyPatch, name: str, given: Pairs, refused: bool
) -> None:
    monkeypatch.setattr(row_limit, "MAX_READ", 100)
    if not refused:
        answered(name, given)
        return
    with pytest.raises(
        QuestionRefused, match="allowed: at most 100; ask about a shorter range"
    ) as caught:
        answered(name, given)
    assert caught.value.problem["status"] == 422
    assert caught.value.problem["parameter"] == "last"


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ([("before-where", "replica=sim-0"), ("after-where", "replica=sim-1")], "last"),
        ([("before", "1763634000/1763634600"), ("after", "1763634600/9000000000")], "after"),
    ],
)
def test_a_side_with_too_many_requests_is_refused(
    of_fleet: str, monkeypatch: pytest.MonkeyPatch, given: Pairs, parameter: str
) -> None:
    monkeypatch.setattr(row_limit, "MAX_OF_SIDE", 100)
    with pytest.raises(
        QuestionRefused, match="allowed: at most 100; ask about a shorter range"
    ) as caught:
        answered("compare", given)
    assert caught.value.problem["status"] == 422
    assert caught.value.problem["parameter"] == parameter


def test_an_answer_with_too_many_rows_or_characters_is_refused(
    of_fleet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "MAX_LINES", 20)
    with pytest.raises(QuestionRefused, match="over 20 objects; allowed: at most 20") as caught:
        answered("requests", [])
    assert caught.value.problem["status"] == 422
    monkeypatch.setattr(answer, "MAX_CHARACTERS", 100)
    with pytest.raises(QuestionRefused, match="over 100 characters"):
        answered("requests", [("limit", "1")])


def test_a_missing_database_is_not_a_failure_of_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", "sqlite:////nowhere/tailspan.db")
    for name in questions():
        with pytest.raises(QuestionRefused, match=r"/nowhere/tailspan\.db") as caught:
            answered(name, [("set", "max_num_seqs=2")] if name == "what-if" else [])
        assert caught.value.problem["status"] == 503
