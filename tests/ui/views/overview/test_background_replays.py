import threading
from dataclasses import replace

import pytest
from sqlalchemy import Engine, create_engine

from diagnosis.explanation import Cause, Explanation, Method, Verdict
from diagnosis.question import Metric, Question, Span
from ui.views.overview.background_replays import AGAIN_S, BackgroundReplays

ENGINE = create_engine("sqlite://")
CAUSE = Cause("tenant_flood", 1.0, evidence=(), levers=(), where={})
TOLD = Explanation(
    Question(Metric.TTFT, Span(10, 20), Span(0, 10)), Verdict.INCIDENT, 9, 9, 3, causes=[CAUSE]
)
TESTED = replace(TOLD, causes=[replace(CAUSE, share=0.9)], method=Method.COUNTERFACTUAL)


class Replay:
    """A replay that ends when the test lets it."""

    def __init__(self) -> None:
        self.answer: Explanation = TESTED
        self.times = 0
        self.let = threading.Event()

    def __call__(self, _engine: Engine, _explanation: Explanation) -> Explanation:
        self.times += 1
        assert self.let.wait(30)
        return self.answer


@pytest.fixture
def replay() -> Replay:
    return Replay()


def ended() -> None:
    """Wait for the threads of replays."""
    for thread in threading.enumerate():
        if thread.name.endswith("(_run)"):
            thread.join(30)


def test_the_page_does_not_wait_for_a_replay(replay: Replay) -> None:
    replays = BackgroundReplays(replay, first_s=100.0)
    assert replays.newest(ENGINE, "chat", TOLD, 99.0) is TOLD
    assert replay.times == 0
    assert replays.newest(ENGINE, "chat", TOLD, 100.0) is TOLD
    assert replays.newest(ENGINE, "other", TOLD, 100.0) is TOLD, "one at a time"
    replay.let.set()
    ended()
    assert replays.newest(ENGINE, "chat", TOLD, 101.0) is TESTED
    assert replay.times == 1


def test_a_replay_is_repeated_and_shown_until_the_next_has_ended(replay: Replay) -> None:
    replays = BackgroundReplays(replay, first_s=0.0)
    replay.let.set()
    replays.newest(ENGINE, "chat", TOLD, 0.0)
    ended()
    replay.let.clear()
    replay.answer = replace(TOLD, not_replayed="it took longer than 120 s")
    assert replays.newest(ENGINE, "chat", TOLD, AGAIN_S) is TESTED
    assert replays.newest(ENGINE, "chat", TOLD, AGAIN_S) is TESTED
    replay.let.set()
    ended()
    assert replay.times == 2
    assert replays.newest(ENGINE, "chat", TOLD, AGAIN_S) is TOLD, "the replay failed"


def test_another_incident_is_replayed_at_once(replay: Replay) -> None:
    replays = BackgroundReplays(replay, first_s=0.0)
    replay.let.set()
    for key in ("chat", "voice"):
        replays.newest(ENGINE, key, TOLD, 1.0)
        ended()
        assert replays.newest(ENGINE, key, TOLD, 1.0) is TESTED
    assert replay.times == 2
