import threading

import pytest

from telemetry.store_errors import StoreUnavailable
from ui.frame.background import MAX_ANSWERS, Background


def test_a_version_is_computed_once_and_the_newest_answer_stays_until_the_next() -> None:
    kept, runs = Background(), []

    def compute(answer: int) -> int:
        runs.append(answer)
        return answer

    assert kept.newest("deploy") is None
    for version in (1, 1, 2, 2):
        if running := kept.start("deploy", version, lambda: compute(len(runs))):
            running.result(10)
    assert runs == [0, 1]
    assert kept.newest("deploy") == 1
    assert kept.newest("other") is None


def test_a_page_does_not_wait_and_a_second_viewer_starts_nothing() -> None:
    kept, go = Background(), threading.Event()
    first = kept.start("deploy", 1, lambda: go.wait(10))
    assert first is not None
    assert kept.newest("deploy") is None
    assert kept.start("deploy", 1, lambda: None) is first
    assert kept.start("deploy", 2, lambda: None) is first
    go.set()
    first.result(10)
    assert kept.newest("deploy") is True


def test_a_failure_is_logged_and_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    kept, runs = Background(), []

    errors = [KeyError("x"), StoreUnavailable("locked"), StoreUnavailable("locked")]

    def fail() -> None:
        runs.append(errors[-1])
        raise errors.pop()

    while errors:
        running = kept.start("deploy", 1, fail)
        assert running is not None
        running.result(10)
    assert kept.start("deploy", 1, lambda: None) is None
    assert len(runs) == len(caplog.records) == 3
    assert kept.newest("deploy") is None


def test_old_subjects_are_forgotten() -> None:
    kept = Background()
    for subject in range(MAX_ANSWERS + 1):
        running = kept.start(subject, 1, lambda: "known")
        assert running is not None
        running.result(10)
    assert kept.newest(0) is None
    assert kept.newest(MAX_ANSWERS) == "known"
