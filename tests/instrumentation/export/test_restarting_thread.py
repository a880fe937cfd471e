import threading

import pytest
from tailspan_vllm import guard
from tailspan_vllm.export import restarting_thread
from tailspan_vllm.export.restarting_thread import RestartingThread

PATIENCE_S = 20


@pytest.mark.parametrize("failure", [ValueError, SystemExit, MemoryError])
def test_a_failed_thread_restarts_after_a_growing_pause(
    failure: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarting_thread, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(guard, "failures", guard.failures.__class__())
    runs: list[None] = []

    def run() -> None:
        runs.append(None)
        if len(runs) < 3:
            raise failure("boom")

    kept = RestartingThread("kept", run, threading.Event())
    kept.ensure()
    kept.join(PATIENCE_S)
    assert (len(runs), kept.alive, guard.failures["kept"]) == (3, False, 2)


def test_a_pause_ends_with_the_program() -> None:
    stop, failed = threading.Event(), threading.Event()

    def run() -> None:
        failed.set()
        raise ValueError

    kept = RestartingThread("kept", run, stop)
    kept.ensure()
    assert failed.wait(PATIENCE_S)
    stop.set()
    kept.join(PATIENCE_S)
    assert not kept.alive
    kept.ensure()
    assert not kept.alive


def test_an_ended_thread_is_restarted_at_most_once_per_second() -> None:
    now, runs = 0.0, list[None]()
    kept = RestartingThread("kept", lambda: runs.append(None), threading.Event(), clock=lambda: now)
    for _ in range(3):
        kept.ensure()
        kept.join(PATIENCE_S)
    assert len(runs) == 1
    now = 1.0
    kept.ensure()
    kept.join(PATIENCE_S)
    assert len(runs) == 2
