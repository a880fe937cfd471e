from collections.abc import Iterable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard, names
from tailspan_vllm.engine_core.link import EngineEnd
from tailspan_vllm.engine_core.link_messages import RequestAccount, decode
from tailspan_vllm.engine_core.observer import (
    CATCH_UP_S,
    STEPS_UNDER_WAY,
    UNSEEN_ENDS,
    EngineObserver,
)
from tailspan_vllm.engine_core.step_ledger import RequestEngineTime, Track
from tailspan_vllm.request.parts import RequestQueueParts


class Front(EngineEnd):
    def __init__(self) -> None:
        self.dropped = 0
        self.messages: list[Any] = []
        self.loads: list[Any] = []
        self.flushes = 0

    def put(self, message: bytes) -> None:
        self.messages.append(decode(message))

    def send_to_one(self, message: bytes) -> None:
        self.messages.append(decode(message))

    def send_to_others(self, message: bytes) -> None:
        self.loads.append(decode(message))

    def flush(self) -> None:
        self.flushes += 1

    @property
    def accounts(self) -> dict[str, RequestEngineTime]:
        return {
            message.request_id: message.account
            for message in self.messages
            if isinstance(message, RequestAccount)
        }


class Waiting(list[Any]):
    def peek_request(self) -> Any:
        return self[0]


def an_output(
    counts: dict[str, int], computed: Iterable[int] = (), new: Iterable[str] = ()
) -> SimpleNamespace:
    """Return the output of a step. `computed` is of the requests that are not new."""
    return SimpleNamespace(
        num_scheduled_tokens=counts,
        total_num_scheduled_tokens=sum(counts.values()),
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=SimpleNamespace(
            num_computed_tokens=list(computed), resumed_req_ids=set()
        ),
    )


class Server:
    """A scheduler with steps of 10 ms each, and its observer."""

    def __init__(self) -> None:
        self.front = Front()
        self.observer = EngineObserver(self.front, 0)
        self.now = 100.0
        self.requests: dict[str, Any] = {}
        config = SimpleNamespace(
            model_config=SimpleNamespace(served_model_name="m"),
            cache_config=SimpleNamespace(block_size=16),
        )
        self.scheduler = SimpleNamespace(
            requests=self.requests,
            running=[],
            waiting=[],
            max_num_running_reqs=2,
            max_num_scheduled_tokens=512,
            scheduler_config=SimpleNamespace(enable_chunked_prefill=True),
            kv_cache_manager=None,
            has_unfinished_requests=lambda: bool(self.requests),
            vllm_config=config,
        )
        self.new: list[str] = []

    def add(self, request_id: str, prompt: int) -> None:
        self.requests[request_id] = SimpleNamespace(num_computed_tokens=0, num_tokens=prompt)
        self.new.append(request_id)

    def step(self, ending: Iterable[str] = (), leaving: Iterable[str] = ()) -> None:
        """Run one step with every request; some requests end or are aborted during the step."""
        counts = {
            name: request.num_tokens if name in self.new else 1
            for name, request in self.requests.items()
        }
        old = [self.requests[name] for name in counts if name not in self.new]
        output = an_output(counts, [each.num_computed_tokens for each in old], self.new)
        self.new = []
        for name, count in counts.items():
            self.requests[name].num_computed_tokens += count
        self.observer.scheduled(self.scheduler, output, self.now)
        for name in leaving:
            self.free(name)
        self.end(output, ending=ending)

    def end(self, output: Any, took_s: float = 0.01, ending: Iterable[str] = ()) -> None:
        self.now += took_s
        self.observer.in_update = True
        for name in ending:
            self.free(name)
        self.observer.ended(self.scheduler, output, {0: SimpleNamespace(timestamp=self.now)})

    def free(self, request_id: str) -> None:
        self.observer.freed(request_id)
        del self.requests[request_id]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(
        "tailspan_vllm.engine_core.engine_reports.fingerprint", lambda config: "c0ffee"
    )
    made = Server()
    made.add("teacher", 50)
    for _ in range(99):
        made.step()
    made.step(ending=["teacher"])
    made.front.messages.clear()
    return made


def test_a_request_is_settled_up_to_its_own_last_step(server: Server) -> None:
    server.add("long", 100)
    server.add("short", 100)
    began = server.now
    server.step()
    server.step(ending=["short"])
    assert not server.front.accounts
    for _ in range(round(CATCH_UP_S / 0.01) + 1):
        server.step()
    (account,) = server.front.accounts.values()
    assert account.last_token == pytest.approx(began + 0.02)
    assert account.prefill is not None
    assert account.decode is not None
    assert sum(account.prefill) == pytest.approx(0.01)
    assert sum(account.decode) == pytest.approx(0.01)
    server.step(ending=["long"])
    account = server.front.accounts["long"]
    assert account.last_token == pytest.approx(server.now)
    assert account.decode is not None
    assert sum(account.decode) == pytest.approx(server.now - began - 0.01)


def test_an_idle_engine_sends_all_accounts(server: Server) -> None:
    """The accounts must not wait for the next step, which may be hours later."""
    server.add("only", 100)
    server.step()
    server.step(ending=["only"])
    assert server.front.accounts["only"].last_token == pytest.approx(server.now)


def test_an_abort_between_steps_is_settled_at_once(server: Server) -> None:
    server.add("left", 100)
    server.add("stays", 100)
    server.step()
    server.step()
    ended = server.now
    server.free("left")
    assert server.front.accounts["left"].last_token == pytest.approx(ended)
    for _ in range(12):
        server.step()
    server.step(ending=["stays"])
    parts = server.front.accounts["stays"].decode
    assert parts is not None
    assert sum(parts) == pytest.approx(0.14)


def test_the_prefill_after_a_failed_load_of_the_kv_cache_is_no_decode(server: Server) -> None:
    """vLLM discards the token of the step in which the load failed."""
    before = server.observer._totals[names.SCHEDULED_PREFILL_TOKENS]
    began = server.now
    request = SimpleNamespace(num_computed_tokens=100, num_tokens=100)
    server.requests["failed"] = request
    output = an_output({"failed": 20}, new=["failed"])
    server.observer.scheduled(server.scheduler, output, server.now)
    request.num_computed_tokens = 0
    server.end(output)
    output = an_output({"failed": 100}, [0])
    request.num_computed_tokens = 100
    server.observer.scheduled(server.scheduler, output, server.now)
    server.end(output)
    server.step()
    server.step(ending=["failed"])
    account = server.front.accounts["failed"]
    assert account.first_token == pytest.approx(began + 0.02)
    assert account.decode is not None
    assert sum(account.decode) == pytest.approx(0.02)
    assert server.observer._totals[names.SCHEDULED_PREFILL_TOKENS] == before + 120
    assert account.bill is not None
    # 20 of the second step's 100 tokens were computed before
    assert account.bill.wasted_s == pytest.approx(0.01 * 0.2)
    assert held_by(server.observer) == 0


def billed(server: Server) -> float:
    bills = [account.bill for account in server.front.accounts.values()]
    return sum(sum(bill) for bill in bills if bill is not None)


def test_a_request_aborted_during_a_step_is_billed_for_it_but_gets_no_token(server: Server) -> None:
    server.add("left", 100)
    server.add("stays", 100)
    began = server.now
    server.step()
    server.step(leaving=["left"])
    server.step(ending=["stays"])
    account = server.front.accounts["left"]
    assert account.first_token == pytest.approx(began + 0.01)
    assert account.last_token == pytest.approx(began + 0.01)
    assert account.bill is not None
    assert account.bill.billed_s == pytest.approx(0.01, rel=0.05)
    assert billed(server) == pytest.approx(0.03)


def test_a_request_aborted_in_its_first_step_has_a_bill_and_no_parts(server: Server) -> None:
    server.add("gone", 100)
    server.step(leaving=["gone"])
    account = server.front.accounts["gone"]
    assert (account.prefill, account.decode, account.first_token) == (None, None, None)
    assert account.bill is not None
    assert account.bill.billed_s == pytest.approx(0.01)


def test_a_step_scheduled_ahead_is_billed_to_its_requests(server: Server) -> None:
    """With asynchronous scheduling, the next step begins before a request's end is known."""
    server.add("one", 100)
    server.add("other", 100)
    server.step()
    outputs = []
    for _ in range(2):
        outputs.append(an_output({"one": 1, "other": 1}, [100, 100]))
        server.observer.scheduled(server.scheduler, outputs[-1], server.now)
    for output, ending in zip(outputs, ("one", "other"), strict=True):
        server.end(output, ending=[ending])
    assert billed(server) == pytest.approx(0.03)
    one = server.front.accounts["one"]
    assert one.last_token == pytest.approx(server.now - 0.01)


def test_a_prefill_scheduled_ahead_lengthens_its_own_step(server: Server) -> None:
    """The outputs of the first step are read 30 ms late, because the second step, a prefill, is
    launched first. The delay counts for the prefill and not as a stall."""
    server.add("one", 100)
    for _ in range(20):
        server.step()
    decode = an_output({"one": 1}, [119])
    prefill = an_output({"one": 1, "new": 300}, [120], ["new"])
    server.observer.scheduled(server.scheduler, decode, server.now)
    server.requests["new"] = SimpleNamespace(num_computed_tokens=300, num_tokens=300)
    server.observer.scheduled(server.scheduler, prefill, server.now)
    server.end(decode, 0.04)
    server.end(prefill, 0.001)
    server.free("new")
    server.step(ending=["one"])
    new = server.front.accounts["new"]
    assert new.prefill is not None
    assert sum(new.prefill) == pytest.approx(0.041)
    ledger = server.observer.ledger
    last = ledger.next_step - 1
    assert ledger._between(ledger._stall, last - 3, last - 2) == 0.0
    assert ledger._between(ledger._base, last - 2, last - 1) > 0.0


def test_totals_count_every_step_once(server: Server) -> None:
    server.add("one", 30)
    for _ in range(200):
        server.step()
    server.step(ending=["one"])
    samples = [message for message in server.front.messages if isinstance(message, dict)]
    totals = samples[-1]["totals"]
    assert totals[names.STEPS] == 301  # with the last step, which follows a sample
    assert totals[names.PREFILL_STEPS] == 2
    assert totals[names.BUSY_TIME] == pytest.approx(3.01)
    assert totals[names.SCHEDULED_PREFILL_TOKENS] == 80


def test_one_look_at_the_link_serves_many_steps(server: Server) -> None:
    server.add("one", 30)
    before = server.front.flushes
    for _ in range(100):
        server.step()
    assert server.front.flushes - before <= 12


def test_external_cached_tokens_are_in_the_account() -> None:
    """Up to vLLM 0.19, the number is an attribute of the request. In later versions, it is in the
    prefill statistics, which vLLM does not correct if the load fails."""
    server = Server()
    names = ("older", "newer", "failed", "neither")
    for name in names:
        server.add(name, 8)
    server.requests["older"].num_external_computed_tokens = 4
    for name, counted in (("newer", 1), ("failed", 8)):
        server.requests[name].prefill_stats = SimpleNamespace(
            num_external_cached_tokens=6, num_cached_tokens=counted
        )
    server.step()
    server.step(ending=names)
    cached = {
        name: account.external_cached_tokens for name, account in server.front.accounts.items()
    }
    assert cached == {"older": 4, "newer": 6, "failed": 0, "neither": None}


def test_the_account_has_the_tokens_before_the_first_chunk() -> None:
    """vLLM's front end may report the cache hits of a prefill server in place of these tokens."""
    server = Server()
    for name in ("loaded", "computed"):
        server.add(name, 8)
    output = an_output({"loaded": 2, "computed": 8}, new=("loaded", "computed"))
    server.new = []
    for request in server.requests.values():
        request.num_computed_tokens = 8
    server.observer.scheduled(server.scheduler, output, server.now)
    server.end(output)
    server.step(ending=("loaded", "computed"))
    cached_tokens = {name: each.cached_tokens for name, each in server.front.accounts.items()}
    assert cached_tokens == {"loaded": 6, "computed": 0}


def test_the_account_has_the_queue_causes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tailspan_vllm.engine_core.observer.time.monotonic", lambda: server.now - 0.004
    )
    for name in ("first", "second"):
        server.add(name, 100)
    server.step()
    server.observer.queued("third")
    server.scheduler.waiting = Waiting([SimpleNamespace(request_id="third")])
    server.scheduler.running = [None, None]
    server.step()
    server.step(ending=["first"])
    server.scheduler.waiting = []
    server.add("third", 100)
    server.step()
    server.step(ending=["second", "third"])
    waited = server.front.accounts["third"].waited
    assert waited is not None
    assert waited.parts == pytest.approx(RequestQueueParts(0.02, 0.0, 0.0, 0.0, 0.004))
    assert server.front.accounts["first"].waited is None  # the request's arrival was not observed


def test_an_abort_in_the_queue_has_a_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailspan_vllm.engine_core.observer.time.monotonic", lambda: server.now)
    for name in ("one", "other"):
        server.add(name, 100)
    server.observer.queued("late")
    server.scheduler.waiting = Waiting([SimpleNamespace(request_id="late")])
    server.scheduler.running = [None, None]
    server.step()
    flushes, joined = server.front.flushes, server.now - 0.01
    server.observer.freed("late")
    account = server.front.accounts["late"]
    assert account.waited is not None
    assert account.waited.queued == pytest.approx(joined)
    assert account.waited.parts == pytest.approx(RequestQueueParts(0.01, 0.0, 0.0, 0.0, 0.0))
    assert (account.scheduled, account.bill) == (None, None)
    assert server.front.flushes == flushes + 1
    server.observer.freed("unseen")
    assert "unseen" not in server.front.accounts


def test_a_session_with_streaming_input_has_no_account(server: Server) -> None:
    server.observer.queued("session")
    server.add("session", 100)
    server.requests["session"].resumable = True
    server.step()
    server.observer.queued("session")
    assert not len(server.observer._waiting.queue or ())
    server.new.append("session")  # the next input
    server.step()
    server.step(ending=["session"])
    assert "session" not in server.front.accounts
    assert held_by(server.observer) == 0
    assert server.observer._no_account == 0


def test_an_incompatible_scheduler_disables_only_the_queue_parts(server: Server) -> None:
    before = guard.failures["queue"]
    server.observer.queued("one")
    server.add("one", 100)
    del server.scheduler.running
    server.scheduler.waiting = Waiting([SimpleNamespace(request_id="another")])
    server.step()
    server.step(ending=["one"])
    account = server.front.accounts["one"]
    assert account.waited is None
    assert account.decode is not None
    assert guard.failures["queue"] == before + 1


def test_requests_that_wait_for_an_adapter_are_counted_with_each_sample() -> None:
    server = Server()
    server.add("a", 8)
    server.scheduler.waiting = [SimpleNamespace(lora_request=None)]
    server.scheduler.running = [SimpleNamespace(lora_request=each) for each in (None, "ada")]
    server.scheduler.skipped_waiting = [SimpleNamespace(lora_request="ada")] * 2
    for adapters in (False, True):
        server.observer._adapters = adapters
        server.front.messages.clear()
        server.observer._sample(server.scheduler)
        (sample,) = server.front.messages
        assert sample["gauges"].get(names.WAITING_LORAS) == (2 if adapters else None)
        assert sample["state"].get(names.RUNNING_LORAS) == (1 if adapters else None)
        assert sample["state"][names.WAITING] == 3


def test_each_sample_has_the_engines_load() -> None:
    server = Server()
    server.scheduler.waiting = [object()]
    server.scheduler.kv_holding_waiting = [object()] * 2
    server.scheduler.deferred_waiting = {1, 2}
    server.scheduler.running = [object()] * 2
    server.scheduler.connector = object()
    server.scheduler._kv_fetch_counts = {"waiting_to_start": 1, "in_progress": 2}
    server.scheduler.kv_cache_manager = SimpleNamespace(usage=0.25)
    server.observer._sample(server.scheduler)
    ((sample,), (load,)) = server.front.messages, server.front.loads
    assert sample["state"] == {
        names.WAITING: 3,
        names.RUNNING: 2,
        names.DEFERRED: 2,
        names.KV_USAGE: 0.25,
        names.FETCHING_KV: 3,
    }
    assert (load["state"], load["totals"]) == (sample["state"], {})


def held_by(observer: EngineObserver) -> int:
    queue = observer._waiting.queue
    kept = (
        *(observer._tracks, observer._prefilling, observer._untracked, observer._freed),
        *(observer._leaving, observer._unsettled),
    )
    return sum(map(len, kept)) + (0 if queue is None else len(queue) + len(queue._new))


def test_ten_thousand_ids_leave_no_state(server: Server) -> None:
    server.add("stays", 100)
    server.step()
    for number in range(10_000):
        for _ in range(1 + number % 2):
            server.observer.queued(f"id-{number % 5_000}")
        server.observer.freed(f"id-{number % 5_000}")
    server.step()
    assert held_by(server.observer) == 1
    assert server.observer._no_account == 0


def test_an_id_used_again_while_it_runs_is_one_track(server: Server) -> None:
    """In older vLLM versions, a client's X-Request-Id became the request id."""
    server.observer.queued("twice")
    server.add("twice", 100)
    server.step()
    server.observer.queued("twice")
    server.new.append("twice")
    server.requests["twice"].num_computed_tokens = 0
    server.step()
    server.step(ending=["twice"])
    server.observer.freed("twice")
    assert "twice" in server.front.accounts
    assert held_by(server.observer) == 0


def test_requests_with_unseen_ends_are_dropped_and_counted(server: Server) -> None:
    before = guard.failures["unseen_ends"]
    server.add("stays", 100)
    for number in range(20):
        for each in range(200):
            server.observer.queued(f"waited-{number}-{each}")
            server.add(f"ran-{number}-{each}", 10)
        server.step()
        for each in range(200):
            del server.requests[f"ran-{number}-{each}"]
        for _ in range(101):  # one second
            server.step()
        assert held_by(server.observer) < 2 * (UNSEEN_ENDS + 500)
    assert server.observer._no_account > 20 * 200 - UNSEEN_ENDS - 500
    assert guard.failures["unseen_ends"] > before
    server.add("late", 10)
    server.step()
    server.step(ending=["late"])
    for _ in range(12):
        server.step()
    assert "late" in server.front.accounts
    totals = next(
        message for message in reversed(server.front.messages) if isinstance(message, dict)
    )["totals"]
    assert totals[names.ACCOUNTS_DROPPED] == server.observer._no_account


def test_requests_beyond_the_cap_count(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailspan_vllm.engine_core.observer.TRACK_LIMIT", 2)
    everybody = {"one", "two", "three"}
    for name in everybody:
        server.add(name, 10)
    server.step()
    assert server.observer._no_account == 1
    (beyond,) = server.observer._untracked
    first, second = everybody - {beyond}
    server.observer.preempted(beyond)
    server.new.append(beyond)
    server.step(ending=[first])
    server.step(ending=[beyond])
    server.step(ending=[second])
    assert set(server.front.accounts) == {first, second}
    assert held_by(server.observer) == 0


def test_steps_with_unseen_ends_are_dropped(server: Server) -> None:
    server.add("one", 10)
    output = an_output({"one": 1}, [1])
    for _ in range(STEPS_UNDER_WAY):
        server.observer.scheduled(server.scheduler, output, server.now)
    with pytest.raises(RuntimeError, match="ends of 1024 scheduled steps were not seen"):
        server.observer.scheduled(server.scheduler, output, server.now)
    server.observer.lose_track()
    assert not server.observer._planned


def test_a_failed_request_does_not_affect_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = guard.failures["settle"]
    for name in ("odd", "other"):
        server.add(name, 10)
    server.step()
    settle = server.observer.ledger.settle

    def settle_but_one(track: Track, *last: Any) -> RequestEngineTime | None:
        if track.request_id == "odd":
            raise ZeroDivisionError
        return settle(track, *last)

    monkeypatch.setattr(server.observer.ledger, "settle", settle_but_one)
    server.step(ending=["odd", "other"])
    assert set(server.front.accounts) == {"other"}
    assert (guard.failures["settle"], server.observer._no_account) == (before + 1, 1)


def test_a_failed_step_drops_the_accounts_of_its_requests(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        server.add(name, 10)
    server.step()
    with monkeypatch.context() as patched:
        patched.setattr(server.observer.ledger, "end_step", lambda *_, **__: 1 / 0)
        with suppress(ZeroDivisionError):
            for _ in range(12):
                server.step()
            pytest.fail("no step was entered")
    assert (server.observer._no_account, len(server.observer._tracks)) == (3, 0)
    server.add("new", 10)
    server.step()
    for _ in range(12):
        server.step()
    server.step(ending=["new", "one", "two", "three"])
    assert set(server.front.accounts) == {"new"}


def test_a_failing_sample_loses_no_account(server: Server) -> None:
    before = guard.failures["sample"]
    server.scheduler.running = None
    server.add("one", 10)
    for _ in range(310):
        server.step()
    server.step(ending=["one"])
    assert 3 <= guard.failures["sample"] - before <= 5
    assert set(server.front.accounts) == {"one"}
