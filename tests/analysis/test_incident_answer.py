import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.objectives import Objective
from alerts.openslo.reader import load
from analysis import incident_answer
from analysis.incident import IncidentVerdict
from analysis.incident_answer import (
    MAX_BYTES,
    VERSION,
    StoredAnswer,
    store_verdict,
    stored_answer,
    stored_sentences,
)
from diagnosis.claim import Effect, Evidence, Lever
from diagnosis.explanation import (
    Cause,
    Explanation,
    ExplanationVerdict,
    NetworkGrowth,
    PartGrowth,
    Replay,
    RiskRatio,
    ShareMethod,
)
from diagnosis.latency.attainment import Attainment
from diagnosis.question import Metric, Question, Span
from store.alerting.incident_answers import AnswerRow, Phase, answers_of, store_incident_answer
from store.alerting.incidents import store_evaluation
from telemetry.incidents import IncidentRow
from tests.chat_objective import chat_openslo

NS = 10**9
PAGE = IncidentRow("chat", "page", 660, 600, 900, None, 700, "20", None)
ENDED = replace(PAGE, ended_unix_s=1_200)
QUESTION = Question(Metric.TTFT, Span(600 * NS, 900 * NS), Span(0, 600 * NS), {"model": "m"})
CAUSE = Cause(
    "tenant_flood",
    0.89,
    [Evidence("requests/s", 1.0, 9.5), Evidence("waiting", None, 3.0)],
    [Lever("limit the rate", None, "rate=tenant=acme:0.5x", Effect(3.0, 0.2, 0.1, None))],
    {"tenant": "acme"},
    0.75,
    1.0,
)
FIRST = Explanation(
    QUESTION,
    ExplanationVerdict.INCIDENT,
    900,
    1_800,
    30,
    tail_share=0.01,
    baseline_s=0.2,
    now_s=3.0,
    onset_unix_ns=612_345_678_901,
    causes=[CAUSE],
    others=[replace(CAUSE, share=0.01, low=None, high=None)],
    unexplained=0.11,
    parts=[PartGrowth("queue_budget", 0.0, 2.8), PartGrowth("decode_own", 0.1, 0.1)],
    dimensions=[RiskRatio("tenant", "acme", 9.0, 5.0, 13.0, 400)],
    dimensions_tested=12,
    attainments=[Attainment("chat", 0.5, 0.01, 1_800, 3, 900, 400, 12.5)],
    method=ShareMethod.COUNTERFACTUAL,
    unexplained_low=0.0,
    unexplained_high=0.25,
    replay=Replay(900, 0.2, 0.21, 3.0, 2.9),
    network=[NetworkGrowth("eu", 9, 9, 0.1, (0.05, 0.2), 0.4, (0.3, 0.5))],
    contradictions=["the clocks differ"],
)
OTHER = replace(FIRST, question=replace(QUESTION, metric=Metric.TPOT), causes=(), replay=None)
VERDICT = IncidentVerdict(FIRST, (OTHER,))


@pytest.fixture
def objective(tmp_path: Path) -> Callable[..., Objective]:
    def make(good: str = "ttft_s <= 0.5 and tpot_s <= 0.05") -> Objective:
        (tmp_path / "chat.yaml").write_text(chat_openslo(good, where="model == 'm'"))
        (found,) = load([tmp_path / "chat.yaml"]).objectives
        return found

    return make


def known(engine: Engine, objective: Objective, incident: IncidentRow = PAGE) -> StoredAnswer:
    found = stored_answer(engine, objective, incident)
    assert found is not None
    return found


def test_an_answer_is_read_as_it_was_kept(
    engine: Engine, objective: Callable[..., Objective]
) -> None:
    chat = objective()
    assert stored_answer(engine, chat, PAGE) is None
    store_verdict(engine, chat, PAGE, VERDICT, 915)
    found = known(engine, chat)
    assert (found.computed_unix_s, found.version, found.phase) == (915, VERSION, Phase.OPEN)
    assert found.verdict.sentence == VERDICT.sentence
    assert [repr(each) for each in found.explanations] == [
        repr(_tuples(each)) for each in (FIRST, OTHER)
    ]
    assert found.explained(QUESTION) is found.verdict.first
    assert found.explained(OTHER.question) is found.verdict.others[0]
    assert found.explained(replace(QUESTION, where={})) is None
    assert found.questions.metrics == (Metric.TTFT, Metric.TPOT)
    assert found.questions.of(Metric.TTFT) == QUESTION
    assert stored_sentences(engine, chat, [PAGE]) == {("page", 660): VERDICT.sentence}


def _tuples(each: Explanation) -> Explanation:
    """Return the explanation with tuples; JSON turns tuples into lists."""
    causes = tuple(
        replace(one, evidence=tuple(one.evidence), levers=tuple(one.levers)) for one in each.causes
    )
    others = tuple(
        replace(one, evidence=tuple(one.evidence), levers=tuple(one.levers)) for one in each.others
    )
    names = ("parts", "dimensions", "attainments", "network", "contradictions")
    rest: dict[str, Any] = {name: tuple(getattr(each, name)) for name in names}
    return replace(each, causes=causes, others=others, **rest)


def test_after_the_end_the_answer_of_the_end_is_shown(
    engine: Engine, objective: Callable[..., Objective]
) -> None:
    chat = objective()
    store_verdict(engine, chat, PAGE, VERDICT, 915)
    assert known(engine, chat, ENDED).phase is Phase.OPEN, "there is no newer one"
    store_verdict(engine, chat, ENDED, VERDICT, 1_215)
    assert known(engine, chat, ENDED).computed_unix_s == 1_215
    assert known(engine, chat, PAGE).phase is Phase.OPEN, "the end was taken back"
    store_verdict(engine, chat, PAGE, VERDICT, 990)
    assert len(answers_of(engine, PAGE)) == 2, "one row per phase"


def test_a_ticket_has_the_answer_of_the_page_that_overlaps_it(
    engine: Engine, objective: Callable[..., Objective]
) -> None:
    chat = objective()
    ticket = replace(PAGE, severity="ticket", fired_unix_s=700)
    store_evaluation(engine, "chat", 900, [PAGE, ticket])
    store_verdict(engine, chat, ticket, VERDICT, 915)
    assert stored_answer(engine, chat, PAGE) is None
    assert stored_answer(engine, chat, ticket) is None, "the page has no answer yet"
    store_verdict(engine, chat, PAGE, VERDICT, 930)
    assert known(engine, chat, ticket).computed_unix_s == 930
    before = replace(ticket, fired_unix_s=300, began_unix_s=300, ended_unix_s=500)
    store_verdict(engine, chat, before, VERDICT, 945)
    assert known(engine, chat, before).computed_unix_s == 945


def test_a_changed_objective_asks_another_question(
    engine: Engine, objective: Callable[..., Objective]
) -> None:
    store_verdict(engine, objective(), PAGE, VERDICT, 915)
    assert stored_answer(engine, objective("ttft_s <= 0.1"), PAGE) is None


def test_the_sentence_names_the_time_and_an_older_version(
    engine: Engine, objective: Callable[..., Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = objective()
    store_verdict(engine, chat, PAGE, VERDICT, 915)
    found = known(engine, chat)
    reported = "Computed at 915 from the requests of 600 to 900"
    assert found.computed(lambda unix_ns: str(unix_ns // NS)) == f"{reported}."
    monkeypatch.setattr(incident_answer, "VERSION", VERSION + 1)
    assert found.computed(lambda unix_ns: str(unix_ns // NS)) == (
        f"{reported}, by version {VERSION} of the method (the current version: {VERSION + 1})."
    )


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("answer", lambda text: text[:-9]),
        ("answer", lambda text: ""),
        ("answer", lambda text: "[" * 200_000),
        ("answer", lambda text: '{"explanations": []}'),
        ("answer", lambda text: text.replace("tenant_flood", "<script>")),
        ("answer", lambda text: text.replace("queue_budget", "no such part")),
        ("answer", lambda text: text.replace('"ttft"', '"speed"')),
        ("answer", lambda text: text.replace("0.89", "NaN")),
        ("answer", lambda text: text + " " * MAX_BYTES),
        ("answer", lambda text: text.replace('"now_s": 3.0', '"now_s": "3.0"')),
        ("question", lambda text: text.replace("900000000000", "900000000001")),
        ("question", lambda text: "null"),
        ("phase", lambda text: "later"),
    ],
)
def test_a_damaged_answer_is_ignored_with_one_line_in_the_log(
    engine: Engine,
    objective: Callable[..., Objective],
    caplog: pytest.LogCaptureFixture,
    column: str,
    change: Callable[[str], str],
) -> None:
    chat = objective()
    store_verdict(engine, chat, ENDED, VERDICT, 915)
    (row,) = answers_of(engine, PAGE)
    changed: dict[str, Any] = {column: change(getattr(row, column))}
    damaged = replace(row, **changed)
    assert damaged != row
    store_incident_answer(engine, damaged)
    if column == "phase":
        store_incident_answer(engine, replace(row, answer="{}"))
    incident_answer._read.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert stored_answer(engine, chat, ENDED) is None
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == (2 if column == "phase" else 1)
    assert all(each.startswith("the stored answer of an incident") for each in lines)
    assert max(map(len, lines)) < 400


def test_an_answer_that_is_too_long_is_not_stored(
    engine: Engine, objective: Callable[..., Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident_answer, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match=r"the answer has .* bytes; allowed: 100"):
        store_verdict(engine, objective(), PAGE, VERDICT, 915)


def test_an_answer_of_a_newer_version_with_unknown_fields_is_ignored(
    engine: Engine, objective: Callable[..., Objective]
) -> None:
    chat = objective()
    store_verdict(engine, chat, PAGE, VERDICT, 915)
    (row,) = answers_of(engine, PAGE)
    found = json.loads(row.answer)
    found["explanations"][0]["certainty"] = 1
    newer: AnswerRow = replace(row, answer=json.dumps(found), version=VERSION + 1)
    store_incident_answer(engine, newer)
    assert stored_answer(engine, chat, PAGE) is None
