import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from alerts.objectives import Objective
from alerts.openslo.reader import load
from analysis.incident import incident_verdict
from diagnosis.claim import Evidence, Lever
from diagnosis.explanation import Cause, Explanation, Verdict
from diagnosis.question import Metric, Question
from server import likely_cause
from server.likely_cause import AskError, LikelyCauses, asked_apart
from store.alerting.incidents import IncidentRow
from store.database import open_database
from store.writer import Writer
from telemetry.requests import RequestTimeline
from tests.chat_objective import chat_openslo

BEGAN_S = 1_790_000_000


def _incident(**changed: Any) -> IncidentRow:
    given: dict[str, Any] = {
        "slo": "chat",
        "severity": "page",
        "began_unix_s": BEGAN_S,
        "fired_unix_s": BEGAN_S + 60,
        "last_unix_s": BEGAN_S + 60,
        "peak_unix_s": BEGAN_S + 60,
        "ended_unix_s": None,
        "peak_burn": "20",
        "budget_spent": None,
    }
    return IncidentRow(**{**given, **changed})


class Asked:
    """An explainer with a fixed result that records its questions."""

    def __init__(self, causes: int = 1) -> None:
        self.questions: list[Question] = []
        self.causes = causes

    def __call__(
        self, _engine: Engine, question: Question, objectives: Sequence[Objective]
    ) -> Explanation:
        self.questions.append(question)
        self.objectives = objectives
        cause = Cause(
            id="kv_cache_exhausted",
            share=0.8,
            evidence=[Evidence("x", 0.0, 1.0)],
            levers=[Lever("store keys and values in 8 bits", "--kv-cache-dtype fp8")],
            where={"replica": "r0"},
        )
        return Explanation(question, Verdict.INCIDENT, 900, 900, 30, causes=(cause,) * self.causes)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_database(f"sqlite:///{tmp_path}/tailspan.db")


@pytest.fixture
def objective(tmp_path: Path) -> Callable[[str], Objective]:
    def make(good: str) -> Objective:
        file = tmp_path / "chat.yaml"
        file.write_text(chat_openslo(good, where="model == 'm'"))
        (found,) = load([file]).objectives
        return found

    return make


def sentence(engine: Engine, asked: Asked, objective: Objective, at_s: int) -> str | None:
    found = incident_verdict(engine, objective, _incident(), at_s, asked)
    return None if found is None else found.sentence


def test_the_sentence_is_complete(engine: Engine, objective: Callable[[str], Objective]) -> None:
    asked = Asked()
    assert sentence(engine, asked, objective("tpot_s <= 0.05"), BEGAN_S + 60) == (
        "Probably most of the growth of TPOT: the KV cache is full: requests wait for blocks"
        " although the batch has free places (replica r0). Try: store keys and values in 8 bits,"
        " --kv-cache-dtype fp8."
    )
    (question,) = asked.questions
    assert question.metric is Metric.TPOT
    assert question.window.seconds == 300
    assert question.baseline.seconds == 1_800
    assert question.baseline.to_unix_ns == question.window.from_unix_ns
    assert question.where == {"model": "m"}


def test_no_cause_is_no_sentence(engine: Engine, objective: Callable[[str], Objective]) -> None:
    assert sentence(engine, Asked(causes=0), objective("ttft_s <= 0.5"), BEGAN_S) is None
    asked = Asked()
    assert sentence(engine, asked, objective("outcome == 'stop'"), BEGAN_S) is None
    assert not asked.questions


class Apart:
    """An explainer that counts its questions, and returns when the test allows it."""

    def __init__(self) -> None:
        self.answer: str | Exception | None = "tenant a sends more"
        self.let = threading.Event()
        self.let.set()
        self.answered = threading.Semaphore(0)
        self.times = 0

    def __call__(self, _objective: Objective, _incident: IncidentRow, _at_s: int) -> str | None:
        self.times += 1
        assert self.let.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def wait(self) -> None:
        assert self.answered.acquire(timeout=30)


@pytest.fixture
def apart() -> Iterator[Apart]:
    made = Apart()
    yield made
    made.let.set()


def test_a_cause_is_found_in_the_background(
    apart: Apart, objective: Callable[[str], Objective]
) -> None:
    apart.let.clear()
    causes = LikelyCauses(apart, apart.answered.release)
    chat = objective("ttft_s <= 0.5")
    assert causes(chat, _incident(), BEGAN_S + 60) is None
    assert causes(chat, _incident(fired_unix_s=BEGAN_S + 61), BEGAN_S + 61) is None
    apart.let.set()
    apart.wait()
    assert causes(chat, _incident(), BEGAN_S + 75) == "tenant a sends more"
    assert apart.times == 1


def test_the_explainer_is_asked_once(apart: Apart, objective: Callable[[str], Objective]) -> None:
    """A diagnosis reads every request of half an hour."""
    causes, chat = LikelyCauses(apart, apart.answered.release), objective("ttft_s <= 0.5")
    causes(chat, _incident(), BEGAN_S)
    apart.wait()
    for second in range(15, 300, 15):
        assert causes(chat, _incident(), BEGAN_S + second) == "tenant a sends more"
    apart.answer = None
    causes(chat, _incident(), BEGAN_S + 300)
    apart.wait()
    assert apart.times == 2
    over = _incident(ended_unix_s=BEGAN_S + 900)
    assert causes(chat, over, BEGAN_S + 1_000) == "tenant a sends more"
    assert apart.times == 2


def test_a_failed_diagnosis_is_retried(apart: Apart, objective: Callable[[str], Objective]) -> None:
    apart.answer = AskError("it took longer than 60 s")
    causes, chat = LikelyCauses(apart, apart.answered.release), objective("ttft_s <= 0.5")
    assert causes(chat, _incident(), BEGAN_S) is None
    apart.wait()
    assert causes.task.failures == 1
    apart.answer = "found"
    causes(chat, _incident(), BEGAN_S + 300)
    apart.wait()
    assert causes(chat, _incident(), BEGAN_S + 315) == "found"
    assert causes.task.problem is None


def test_the_process_has_a_time_limit(
    engine: Engine, objective: Callable[[str], Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likely_cause, "MOST_S", 0.05)
    with pytest.raises(AskError, match="it took longer than"):
        asked_apart(engine)(objective("ttft_s <= 0.5"), _incident(), BEGAN_S)


def test_the_memory_of_the_process_is_limited(
    engine: Engine, objective: Callable[[str], Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import server.likely_cause as c; c.MOST_BYTES = 2**27; c.main()"
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda _, **rest: run([sys.executable, "-c", code], **rest)
    )
    with pytest.raises(AskError, match="its process ended with status"):
        asked_apart(engine)(objective("ttft_s <= 0.5"), _incident(), BEGAN_S)


@pytest.mark.parametrize(
    ("printed", "end", "wanted"),
    [
        (['{"sentence": "most"}', '{"sentence": "80%"}'], "", "80%"),
        (['{"sentence": "most"}'], "sys.exit(3)", "most"),
        (['{"sentence": "most"}'], "time.sleep(600)", "most"),
        (['{"sentence": "most"}'], "print('{\"sent', end='', flush=True); sys.exit(1)", "most"),
        (['{"sentence": null}', '{"sentence": null}'], "", None),
    ],
)
def test_a_failed_replay_leaves_the_sentence_by_accounting(
    engine: Engine,
    objective: Callable[[str], Objective],
    monkeypatch: pytest.MonkeyPatch,
    printed: Sequence[str],
    end: str,
    wanted: str | None,
) -> None:
    lines = "\n".join(f"print({each!r}, flush=True)" for each in printed)
    code = f"import sys, time\n{lines}\n{end}"
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda _, **rest: run([sys.executable, "-c", code], **rest)
    )
    monkeypatch.setattr(likely_cause, "MOST_S", 2)
    told = asked_apart(engine)(objective("ttft_s <= 0.5"), _incident(), BEGAN_S)
    assert told == wanted


def test_the_share_by_replay_follows_the_share_by_accounting(
    engine: Engine, objective: Callable[[str], Objective], monkeypatch: pytest.MonkeyPatch
) -> None:
    def replays(_engine: Engine, explanation: Explanation) -> Explanation:
        causes = [replace(each, share=0.9, low=0.8, high=0.95) for each in explanation.causes]
        return replace(explanation, causes=causes)

    asked = Asked()
    monkeypatch.setattr(likely_cause, "with_replayed_shares", replays)
    monkeypatch.setattr(likely_cause, "NICE", 0)
    monkeypatch.setattr(likely_cause, "incident_verdict", partial(incident_verdict, explain=asked))
    chat = objective("tpot_s <= 0.05")
    first, second = map(str, likely_cause.find(engine, chat, _incident(), BEGAN_S))
    assert first.startswith("Probably most of the growth of TPOT: the KV cache is full")
    assert second.startswith("90% [80% to 95%] of the growth of TPOT: the KV cache is full")
    errors = objective("outcome == 'stop'")
    assert list(likely_cause.find(engine, errors, _incident(), BEGAN_S)) == [None]


def test_a_real_store_is_asked(
    engine: Engine,
    objective: Callable[[str], Objective],
    request_row: Callable[..., RequestTimeline],
) -> None:
    queue = dict.fromkeys(("queue_seats_s", "queue_budget_s", "queue_held_s", "queue_step_s"), 0.0)
    rows = []
    for number in range(2_100):
        waited_s = 2.0 if number >= 1_800 else 0.0
        rows.append(
            request_row(
                number,
                received_unix_ns=(BEGAN_S - 1_800 + number) * 10**9,
                model="m",
                streamed=True,
                frontend_s=0.01,
                queue_s=waited_s,
                queue_kv_s=waited_s,
                prefill_s=0.05,
                ttft_s=0.07 + waited_s,
                e2e_s=0.6 + waited_s,
                prompt_tokens=100,
                output_tokens=20,
                **queue,
            )
        )
    with Writer(engine) as writer:
        writer.submit(rows, []).result(10)
    told = asked_apart(engine)(objective("ttft_s <= 0.5"), _incident(), BEGAN_S + 300)
    assert told is not None
    assert told.startswith("Probably most of the growth of TTFT: the KV cache is full")
