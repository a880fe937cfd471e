from collections import Counter, deque
from collections.abc import Sequence

import pytest
from tailspan_vllm.export.outbox import Outbox
from tailspan_vllm.export.retry import FIRST_PAUSE_S, Backoff
from tailspan_vllm.export.transport import ExportResponse, ExportVerdict

POISON = "poison"


class Setting:
    """An outbox for strings, with a scripted collector and a fake clock."""

    def __init__(self, batch_limit: int = 512) -> None:
        self.now = 0.0
        self.answer: ExportResponse | None = None
        self.posted: list[list[str]] = []
        self.accepted: list[str] = []
        self.dropped: Counter[str] = Counter()
        self.noted: list[ExportResponse] = []
        self.outbox = Outbox[str](
            self._post,
            _encode,
            batch_limit,
            lambda count, reason: self.dropped.update({reason: count}),
            self.noted.append,
            lambda: self.now,
            Backoff(jitter=lambda: 1.0),
        )

    def _post(self, message: bytes) -> ExportResponse:
        items = message.decode().split(",")
        self.posted.append(items)
        if self.answer is not None:
            return self.answer
        if POISON in items:
            return ExportResponse(ExportVerdict.REFUSED, "HTTP 400 Bad Request")
        self.accepted += items
        return ExportResponse(ExportVerdict.ACCEPTED)


def _encode(items: Sequence[str]) -> bytes:
    return ",".join(items).encode()


@pytest.mark.parametrize("refused", [{0}, {399}, {511}, {3, 4, 5}, {0, 100, 511}])
def test_one_refused_item_does_not_affect_the_others(refused: set[int]) -> None:
    setting = Setting()
    items = [POISON if index in refused else str(index) for index in range(600)]
    queue, taken = deque(items), list[str]()
    for _ in range(10):
        setting.outbox.send(queue, taken.extend)
    assert not queue
    assert taken == items
    assert setting.accepted == [item for item in items if item != POISON]
    assert setting.dropped == {"refused": len(refused)}
    setting.outbox.send(deque(map(str, range(600))))
    assert len(setting.posted[-1]) >= 88  # message sizes grow again


def test_an_item_that_cannot_be_encoded_does_not_affect_the_others() -> None:
    setting = Setting()
    setting.outbox.send(deque(["a", "\ud800", "b"]))
    assert setting.accepted == ["a", "b"]
    assert setting.dropped == {"refused": 1}


def test_a_collector_that_refuses_everything_gets_few_retries() -> None:
    setting = Setting()
    setting.answer = ExportResponse(ExportVerdict.REFUSED)
    queue = deque(map(str, range(512)))
    setting.outbox.send(queue)
    assert len(setting.posted) <= 64
    assert setting.dropped["refused"] == 512 - len(queue)


def test_a_busy_collector_gets_the_same_batch_after_its_own_pause() -> None:
    setting = Setting()
    setting.answer = ExportResponse(ExportVerdict.BUSY, wait_s=40.0)
    queue = deque("abc")
    setting.outbox.send(queue)
    setting.now = 39.9
    setting.outbox.send(queue)
    assert setting.posted == [["a", "b", "c"]]
    setting.answer, setting.now = None, 40.0
    setting.outbox.send(queue)
    assert setting.accepted == ["a", "b", "c"]
    assert not setting.dropped


def test_a_denied_sender_drops_one_batch_per_pause() -> None:
    setting = Setting(batch_limit=2)
    setting.answer = ExportResponse(ExportVerdict.DENIED, "HTTP 401 Unauthorized")
    queue = deque("abcdef")
    setting.outbox.send(queue)
    setting.outbox.send(queue)
    assert (list(queue), setting.dropped) == (list("cdef"), {"denied": 2})
    setting.answer, setting.now = None, FIRST_PAUSE_S
    setting.outbox.send(queue)
    assert setting.accepted == list("cdef")


def test_items_rejected_in_an_accepted_batch_are_counted() -> None:
    setting = Setting()
    setting.answer = ExportResponse(ExportVerdict.ACCEPTED, "partial success", rejected=10**9)
    queue = deque("abc")
    setting.outbox.send(queue)
    assert (list(queue), setting.dropped) == ([], {"rejected": 3})
