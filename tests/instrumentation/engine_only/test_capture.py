import secrets
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard, names
from tailspan_vllm.engine_core import scheduler_hooks
from tailspan_vllm.engine_core.link import EngineEnd
from tailspan_vllm.engine_core.observer import EngineObserver
from tailspan_vllm.engine_only import capture as capture_module
from tailspan_vllm.engine_only import record_builder
from tailspan_vllm.engine_only.capture import EngineCapture
from tailspan_vllm.export.account_join import AccountJoin
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.settings import settings_from

from tests.instrumentation import fake_vllm as fake
from tests.instrumentation.fake_vllm import failures

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def a_request(name: str, outcome: str = "length", **more: Any) -> Any:
    request = fake.request(f"chatcmpl-{name}-0a1b2c3d")
    request.num_prompt_tokens, request.num_output_tokens = 8, 5
    request.prefill_stats = SimpleNamespace(num_cached_tokens=4, num_external_cached_tokens=0)
    request.get_finished_reason = lambda: outcome
    for key, value in more.items():
        setattr(request, key, value)
    return request


def step_stats(waiting: int = 2) -> Any:
    return SimpleNamespace(
        num_running_reqs=1,
        num_waiting_reqs=waiting,
        kv_cache_usage=0.25,
        prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
    )


class Core:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake.modules(monkeypatch, vllm={})
        self.calls = fake.Calls()
        token = secrets.token_hex(8)
        self.capture = EngineCapture(
            settings_from({"OTEL_SDK_DISABLED": "true"}), 3, f"{token}-engine-3", 8123
        )
        self.submitted: list[Any] = []
        setattr(self.capture.sender, "submit", self.submitted.append)  # noqa: B010  # a method is replaced
        monkeypatch.setattr(self.capture.sender, "start", lambda: None)
        self.link = EngineEnd(token, "engine-3")
        self.join = AccountJoin(f"{token}-engine-3")
        cls = fake.scheduler_class(self.calls)
        self.missing = scheduler_hooks.install_on(
            cls, lambda _: EngineObserver(self.link, 3, listener=self.capture), early=True
        )
        self.scheduler = cls()
        self.scheduler.kv_cache_manager.usage = 0.5
        self.now = time.monotonic()

    def begin(self, request: Any) -> None:
        self.calls.check(self.scheduler, "add_request", object(), request)
        self.scheduler.requests[request.request_id] = request

    def step(self, request: Any, tokens: int, *, new: bool = False) -> None:
        name = request.request_id
        request.num_computed_tokens = 8
        output = fake.output({name: tokens}, (name,) if new else ())
        self.calls.check(self.scheduler, "schedule", output, throttle_prefills=True)
        self.now = max(self.now + 0.01, time.monotonic())
        outputs = SimpleNamespace(timestamp=self.now, scheduler_stats=step_stats())
        self.calls.check(self.scheduler, "update_from_output", {0: outputs}, output, object())

    def end(self, request: Any) -> None:
        self.calls.check(self.scheduler, "_free_request", object(), request)
        self.scheduler.requests.pop(request.request_id, None)

    def record(self, place: int = 0) -> RequestRecord:
        record: RequestRecord = self.submitted[place]()
        self.join.read()
        self.link.flush()
        self.join.read()
        assert self.join.apply(record)
        return record


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    core = Core(monkeypatch)
    core.join.read()
    yield core
    core.join.close()
    core.link.close()


def test_a_request_is_reported_from_the_queue_to_the_last_token(core: Core) -> None:
    before = failures()
    request = a_request("x", trace_headers={"traceparent": TRACE})
    core.begin(request)
    core.step(request, 4, new=True)
    for _ in range(4):
        core.step(request, 1)
    core.end(request)
    core.step(a_request("other"), 1)
    record = core.record()
    assert (record.basis, record.outcome, record.engine) == ("engine", "length", 3)
    assert (record.request_id, record.operation) == ("chatcmpl-x", "chat")
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (8, 4, 5)
    assert record.trace_id == int("0af7651916cd43dd8448eb211c80319c", 16)
    assert record.parent_span_id == int("b7ad6b7169203331", 16)
    assert record.arrived is None
    assert record.received == record.queued
    instants = [record.queued, record.scheduled, record.first_token, record.last_token]
    known = [instant for instant in instants if instant is not None]
    assert known == sorted(instant for instant in known)
    assert len(set(known[1:])) == 3
    assert record.delivered == record.last_token
    assert (record.waiting_at_arrival, record.running_at_arrival) == (0, 0)
    assert record.kv_usage_at_arrival == 0.5
    assert (record.model, record.config is None) == ("m", False)
    assert failures() == before
    assert not len(core.capture.in_flight)


def test_tokens_written_to_the_cache_are_read_after_the_first_output(core: Core) -> None:
    """vLLM completes the count at the first output, and then removes `prefill_stats`."""
    for name, output_tokens in (("answered", 5), ("left", 0)):
        request = a_request(name, num_output_tokens=output_tokens)
        prefill = request.prefill_stats
        prefill.num_cache_creation_tokens = 0
        core.begin(request)
        core.step(request, 8, new=True)
        prefill.num_cache_creation_tokens, request.prefill_stats = 3, None
        core.end(request)
        core.step(a_request("other"), 1)
    assert [core.record(which).cache_write_tokens for which in (0, 1)] == [3, None]


def test_a_request_that_leaves_the_queue_has_only_a_queue(core: Core) -> None:
    request = a_request("gone", "abort")
    core.begin(request)
    core.end(request)
    record = core.record()
    assert record.outcome == "abort"
    assert record.scheduled is None
    assert record.delivered >= record.received == record.queued


def test_without_an_account_the_phases_are_unknown(core: Core) -> None:
    request = a_request("x")
    core.begin(request)
    core.end(request)
    record: RequestRecord = core.submitted[0]()
    assert record.queued is None
    assert record.delivered > record.received


@pytest.mark.parametrize(
    ("reason", "outcome"), [("stop", "stop"), ("repetition", "stop"), ("new kind", "error")]
)
def test_every_reason_has_an_outcome(core: Core, reason: str, outcome: str) -> None:
    request = a_request("x", reason)
    core.begin(request)
    core.end(request)
    assert core.submitted[0]().outcome == outcome


def test_preemptions_and_an_adapter_are_reported(core: Core) -> None:
    request = a_request("x", lora_request=SimpleNamespace(lora_name="ada"))
    core.begin(request)
    core.step(request, 8, new=True)
    core.calls.check(core.scheduler, "_preempt_request", object(), request, 1.0)
    core.end(request)
    record = core.submitted[0]()
    assert (record.preemptions, len(record.preempted_at), record.lora) == (1, 1, "ada")
    state = core.capture._engines[3]
    assert state.totals[names.ENGINE_PREEMPTIONS] == 1


def test_requests_that_wait_for_their_kv_cache_wait_at_arrival(core: Core) -> None:
    """Since 0.31, vLLM keeps requests that already hold blocks in a queue of their own."""
    core.scheduler.waiting.append(a_request("queued"))
    core.scheduler.kv_holding_waiting = [a_request("loading"), a_request("loading too")]
    request = a_request("x")
    core.begin(request)
    core.end(request)
    assert core.submitted[0]().waiting_at_arrival == 3


def test_a_session_with_streaming_input_is_no_request(core: Core) -> None:
    for is_resumable in (True, True, False):  # the last input is the end of the session
        core.begin(a_request("session", resumable=is_resumable))
        assert not len(core.capture.in_flight)
    core.end(a_request("session"))
    assert not core.submitted


def test_an_id_used_again_while_it_runs_is_one_request(core: Core) -> None:
    request = a_request("twice")
    core.begin(request)
    core.begin(request)
    core.end(request)
    core.end(request)
    assert len(core.submitted) == 1


def test_the_engine_is_sampled_before_its_first_request(core: Core) -> None:
    (state,) = core.capture._engines.values()
    assert (state.engine, state.model) == (3, "m")
    assert state.totals == {
        names.PREFIX_CACHE_QUERIES: 0,
        names.PREFIX_CACHE_HITS: 0,
        names.ENGINE_PREEMPTIONS: 0,
    }


def test_steps_are_added_up_without_the_totals_of_a_front_end(core: Core) -> None:
    request = a_request("x")
    core.begin(request)
    core.step(request, 8, new=True)
    core.step(request, 1)
    (state,) = core.capture._engines.values()
    state.catch_up()
    assert state.totals[names.PREFIX_CACHE_QUERIES] == 20
    assert state.gauges[names.KV_USAGE] == 0.25
    assert state.gauges[names.WAITING] == 2
    assert names.DECODE_TOKENS not in state.totals
    assert names.PREFILL_TOKENS not in state.totals


def test_a_number_of_open_requests_is_the_limit(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_module, "OPEN_LIMIT", 2)
    requests = [a_request(str(number)) for number in range(3)]
    for request in requests:
        core.begin(request)
    for request in requests:
        core.end(request)
    assert len(core.submitted) == 2


OURS = [
    each
    for owner in (EngineCapture, capture_module, record_builder)
    for each in fake.functions_of(owner)
]


@pytest.mark.parametrize(("owner", "name"), OURS, ids=lambda each: getattr(each, "__name__", each))
def test_whichever_of_our_functions_raises_the_scheduler_works(
    core: Core, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fake.raising([], name))
    request = a_request("x")
    core.begin(request)
    core.step(request, 8, new=True)
    core.calls.check(core.scheduler, "_preempt_request", object(), request, 1.0)
    core.end(request)


@pytest.mark.parametrize(
    "attribute",
    [
        *("trace_headers", "lora_request", "prefill_stats", "get_finished_reason"),
        *("num_prompt_tokens", "num_output_tokens"),
    ],
)
@pytest.mark.parametrize("value", [None, 3, "text"])
def test_any_changed_attribute_of_vllm_is_harmless(core: Core, attribute: str, value: Any) -> None:
    request = a_request("x", **{attribute: value})
    core.begin(request)
    core.step(request, 8, new=True)
    core.end(request)


def test_ids_without_a_random_suffix_are_kept(core: Core) -> None:
    request = a_request("x")
    request.request_id = "cmpl-mine-0"
    core.begin(request)
    core.end(request)
    record = core.submitted[0]()
    assert (record.request_id, record.operation) == ("cmpl-mine-0", "text_completion")


def test_after_the_hooks_are_switched_off_no_request_looks_unfinished(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request left in flight would make the engine look hung."""
    monkeypatch.setattr(guard, "LIMIT", 2)
    request = a_request("x")
    core.begin(request)
    assert len(core.capture.in_flight) == 1
    monkeypatch.setattr(EngineObserver, "scheduled", fake.raising([], "scheduled"))
    for _ in range(2):
        core.step(request, 1)
    assert not len(core.capture.in_flight)
    core.end(request)
    assert core.submitted == []


def test_steps_above_the_limit_are_counted(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "STEPS_LIMIT", 1)
    before = guard.failures.get("steps_dropped", 0)
    request = a_request("x")
    core.begin(request)
    core.step(request, 8, new=True)
    core.step(request, 1)
    assert guard.failures["steps_dropped"] == before + 1
