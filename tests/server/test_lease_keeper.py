import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from server import lease_keeper
from server.lease_keeper import LeaseKeeper
from store.leases import EVALUATION, RETENTION, Leases, LeaseTerm
from telemetry.store_errors import StoreUnavailable

PATIENCE_S = 10.0


class Scripted(Leases):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, [EVALUATION, RETENTION])
        self.shared = True
        self.terms: dict[str, LeaseTerm] = {}
        self.away = False
        self.beats = 0
        self.released = threading.Event()

    def term(self, name: str) -> LeaseTerm | None:
        return self.terms.get(name)

    def beat(self) -> None:
        self.beats += 1
        if self.away:
            raise StoreUnavailable("the database does not respond")

    def release(self) -> None:
        self.released.set()


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    return holds()


def test_taken_and_lost_leases_are_printed_and_the_work_begins_at_once(
    engine: Engine,
) -> None:
    leases, messages, taken = Scripted(engine), [], []
    leases.terms = {EVALUATION: LeaseTerm(EVALUATION, 1), RETENTION: LeaseTerm(RETENTION, 1)}
    keeper = LeaseKeeper(
        leases, lambda: taken.append(True), lambda text, wrong: messages.append((text, wrong))
    )
    keeper._beat()
    keeper._beat()
    assert messages == [
        ("This collector now does the evaluation and retention for all collectors.", False)
    ]
    assert len(taken) == 1
    assert keeper.held() == {EVALUATION: True, RETENTION: True}
    del leases.terms[RETENTION]
    keeper._beat()
    assert messages[1:] == [("This collector has lost the lease on retention.", True)]
    assert keeper.held() == {EVALUATION: True, RETENTION: False}
    assert len(taken) == 1
    # If the state database does not respond, the work under the leases pauses.
    leases.away, leases.terms = True, {}
    keeper._beat()
    ((reported, wrong),) = messages[2:]
    assert wrong
    assert reported == (
        "This collector has lost the lease on evaluation, because the database does not respond."
        " These tasks pause until it is available."
    )


def test_a_failed_renewal_is_reported_and_tried_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "BEAT_S", 0.01)
    leases = Scripted(engine)
    leases.away = True
    keeper = LeaseKeeper(leases, lambda: None, lambda text, wrong: None)
    keeper.start()
    assert soon(lambda: leases.beats >= 3)
    assert keeper.task.failure_reason(time.time()) == "StoreUnavailable"
    leases.away = False
    assert soon(lambda: keeper.task.failure_reason(time.time()) is None)
    keeper.stop()
    keeper.stop()
    assert leases.released.is_set()


def test_with_sqlite_nothing_is_printed(engine: Engine) -> None:
    messages: list[str] = []
    keeper = LeaseKeeper(Leases(engine), lambda: None, lambda text, wrong: messages.append(text))
    keeper.start()
    keeper.stop()
    assert messages == []
    assert keeper.held() == {}
