import time
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard, names
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.sender import OtlpSender
from tailspan_vllm.front_end import capture as capture_module
from tailspan_vllm.front_end import request_hooks
from tailspan_vllm.front_end.capture import Capture
from tailspan_vllm.front_end.request_hooks import OPEN, install_on
from tailspan_vllm.request.exchange import Exchange, current
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.settings import settings_from

from tests.instrumentation import fake_vllm as fake
from tests.instrumentation.fake_vllm import failures

OURS = [
    each
    for owner in (Capture, OtlpSender, request_hooks, capture_module)
    for each in fake.functions_of(owner)
    if each[1] not in ("install", "install_on", "process_capture", "_balancing_client")
]
WRAPS = (
    *("_add_request", "_finish", "_finished", "_abort_requests", "_events", "_refused"),
    "_routed",
)


def an_event(kind: str) -> Any:
    return SimpleNamespace(type=SimpleNamespace(name=kind), timestamp=1.0)


class Server:
    """A front end with the plugin's hooks, and the captured records."""

    def __init__(self, calls: fake.Calls | None = None, processor: Any = None) -> None:
        self.calls = calls or fake.Calls()
        self.capture = Capture(settings_from({"OTEL_SDK_DISABLED": "true"}))
        self.submitted: list[Any] = []
        setattr(self.capture.sender, "submit", lambda build, *_: self.submitted.append(build))  # noqa: B010  # a method is replaced
        processor = processor or fake.output_processor_class(self.calls)
        stats = fake.iteration_stats_class(self.calls)
        manager = fake.stat_logger_manager_class(self.calls)
        client = fake.balancing_client_class(self.calls)
        self.missing = install_on(self.capture, processor, stats, manager, client)
        self.processor, self.stats, self.manager = processor(), stats(), manager()
        self.client = client()

    @property
    def records(self) -> list[RequestRecord]:
        return [build() for build in self.submitted]

    def add(self, request_id: str, changed: Any = None) -> Any:
        request = fake.request(request_id)
        if changed is not None:
            changed("request", request)
        self.calls.check(
            self.processor, "add_request", object(), request, "prompt", parent_req=None
        )
        if hasattr(request, "request_id"):
            identity = (1).to_bytes(2, "little")
            self.calls.check(self.client, "get_core_engine_for_request", identity, request)
        return next(reversed(self.processor.request_states.values()))

    def serve(self, changed: Any = None) -> Exchange:
        """Serve three requests of one call: one ends, one is aborted, one is removed."""
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
        exchange = Exchange(scope)
        token = current.set(exchange)
        try:
            one, other, third = (self.add(name, changed) for name in ("one", "other", "third"))
            if changed is not None:
                for state in (one, other, third):
                    changed("state", state)
                    if isinstance(getattr(state, "stats", None), SimpleNamespace):
                        changed("stats", state.stats)
            events = [an_event("QUEUED"), an_event("PREEMPTED"), an_event("SCHEDULED")]
            if changed is not None:
                events = changed("events", events) or events
            stats = getattr(one, "stats", None)
            self.calls.check(
                self.stats, "update_from_events", None, "one", events, True, stats, None
            )
            self.calls.check(self.processor, "_finish_request", object(), one)
            self.calls.check(
                self.processor, "_update_stats_from_finished", 3, one, "stop", object()
            )
            self.calls.check(self.processor, "abort_requests", ["other"], ["other"], True)
            self.calls.check(self.processor, "_finish_request", object(), third)
            self.calls.check(self.manager, "record_admission_rejection", None, "queue full")
        finally:
            current.reset(token)
        exchange.refused = None  # the request was answered in spite of the rejection
        exchange.answered({"type": "http.response.start", "status": 200, "headers": []})
        exchange.first_byte = exchange.delivered = time.monotonic()
        guard.catch_exceptions("exchange_end")(self.capture.exchange_ended)(exchange)
        return exchange


def test_a_call_without_faults_counts_no_failure() -> None:
    server, before = Server(), failures()
    server.serve()
    assert server.missing == []
    assert sorted(record.outcome for record in server.records) == ["abort", "error", "stop"]
    assert [len(record.preempted_at) for record in server.records] == [1, 0, 0]
    assert failures() == before
    assert not getattr(server.processor, OPEN)


def test_a_record_has_the_engine_that_was_chosen_and_its_load() -> None:
    server = Server()
    for number in (0, 1):
        state = EngineState(number, 0)
        state.gauges = {names.WAITING: 10 * number, names.RUNNING: number}
        server.capture.engines[number] = state
    server.serve()
    records = server.records
    assert [record.engine for record in records] == [1, 1, 1]
    assert {(each.waiting_at_arrival, each.running_at_arrival) for each in records} == {(10, 1)}


def test_the_choice_for_another_request_changes_nothing() -> None:
    server = Server()
    flight = server.capture.flight_began(None, "one")
    server.capture.flight_routed("two", 1)
    server.capture.flight_routed("one", 1)  # not directly after the request
    assert flight.engine is None


@pytest.mark.parametrize(("owner", "name"), OURS, ids=lambda each: getattr(each, "__name__", each))
def test_whichever_of_our_functions_raises(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    boom = fake.raising(called, name)
    is_property = isinstance(vars(owner)[name], property)
    if name in WRAPS:
        monkeypatch.setattr(owner, name, lambda original, *_: (_ for _ in ()).throw(TypeError()))
        server, before = Server(), failures()
        server.serve()
        assert server.missing
        return
    server, before = Server(), failures()
    monkeypatch.setattr(owner, name, property(boom) if is_property else boom)
    server.serve()
    assert (failures() > before) == bool(called)


THINGS = [
    *(("request", name) for name in ("request_id", "trace_headers")),
    *(
        ("state", name)
        for name in (
            *("request_id", "external_req_id", "parent_req", "lora_name", "prompt_len"),
            *("num_cached_tokens", "stats"),
        )
    ),
    *(
        ("stats", name)
        for name in (
            *("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts"),
            "num_generation_tokens",
        )
    ),
]


@pytest.mark.parametrize(
    "change", [None, lambda: None, lambda: 3, lambda: "text", lambda: iter(())]
)
@pytest.mark.parametrize(("kind", "attribute"), THINGS)
def test_any_changed_attribute_of_vllm_is_harmless(kind: str, attribute: str, change: Any) -> None:
    def changed(what: str, thing: Any) -> None:
        if what != kind:
            return
        if change is not None:
            setattr(thing, attribute, change())
        elif attribute != "request_id":  # the original function needs this attribute
            vars(thing).pop(attribute, None)

    server = Server()
    if kind == attribute == "request":
        return
    exchange = server.serve(changed)
    if exchange.flights:
        server.capture.give_up_on(exchange)
    assert 1 <= len(server.submitted) <= 4
    assert not server.capture._lost


def test_iterators_in_arguments_and_results_are_not_consumed() -> None:
    server, before = Server(), failures()
    events = iter([an_event("PREEMPTED")])
    state = server.add("one")
    server.calls.check(
        server.stats, "update_from_events", None, "one", events, True, state.stats, None
    )
    assert len(list(events)) == 1
    aborted = iter(["one"])
    server.calls.check(server.processor, "abort_requests", aborted, iter(["one"]), internal=True)
    assert list(aborted) == ["one"]
    assert failures() == before + 2


def test_exceptions_of_the_front_end_are_passed_on() -> None:
    server = Server()
    state = server.add("one")
    for owner, name, arguments in (
        (server.processor, "add_request", (fake.request("new"), "prompt")),
        (server.processor, "_finish_request", (state,)),
        (server.processor, "_update_stats_from_finished", (state, "stop", None)),
        (server.processor, "abort_requests", (["one"], True)),
        (server.stats, "update_from_events", ("one", [], True, state.stats, None)),
        (server.manager, "record_admission_rejection", ("full",)),
    ):
        error = server.calls.raised[name] = KeyError(name)
        before = len(server.calls.made)
        with pytest.raises(KeyError) as raised:
            getattr(owner, name)(*arguments)
        assert raised.value is error
        assert len(server.calls.made) == before + 1


def test_a_later_vllm_may_rename_and_reorder_parameters() -> None:
    calls = fake.Calls()

    class OutputProcessor(fake.output_processor_class(calls)):  # type: ignore[misc]  # made by a function
        def add_request(self, req: Any, prompt: Any = None, **more: Any) -> Any:
            return super().add_request(req, prompt)

        def _update_stats_from_finished(
            self, new: Any, *, finish_reason: Any, req_state: Any
        ) -> Any:
            return super()._update_stats_from_finished(req_state, finish_reason, new)

    server, before = Server(calls, OutputProcessor), failures()
    server.processor.add_request(req=fake.request("one"), more=1)
    state = server.processor.request_states["one"]
    server.processor._update_stats_from_finished(0, finish_reason="length", req_state=state)
    assert [record.outcome for record in server.records] == ["length"]
    assert failures() == before


@pytest.mark.parametrize("name", ["add_request", "_update_stats_from_finished"])
def test_without_a_method_only_the_http_edge_reports(name: str) -> None:
    async def coroutine(self: Any) -> None:
        """Return a coroutine, which is not the result that the hook expects."""

    for replacement in (None, coroutine):
        calls = fake.Calls()
        cls = fake.output_processor_class(calls)
        setattr(cls, name, replacement)
        as_they_were = dict(vars(cls))
        server = Server(calls, cls)
        assert any(f"OutputProcessor.{name}" in each for each in server.missing)
        assert dict(vars(cls)) == as_they_were
        assert not server.capture.sees_engine


def test_a_missing_attribute_of_a_state_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "vllm.tailspan")
    server = Server()

    class Renamed(dict[str, Any]):
        def __setitem__(self, key: str, state: Any) -> None:
            vars(state).pop("lora_name")
            super().__setitem__(key, state)

    server.processor.request_states = Renamed()
    server.serve()
    server.serve()
    assert [(record.outcome, record.basis) for record in server.records] == [("stop", "edge")] * 2
    (line,) = [record.message for record in caplog.records]
    assert line.endswith("vLLM continues: this vLLM lacks SimpleNamespace.lora_name")


def test_a_failed_request_is_reported_by_the_http_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    for broken in ("facts_of", "Flight"):
        server = Server()
        with monkeypatch.context() as patched:
            patched.setattr(capture_module, broken, fake.raising([], broken))
            server.serve()
        assert [(record.outcome, record.basis) for record in server.records] == [("stop", "edge")]
        assert not server.capture._lost
        server.serve()
        assert len(server.submitted) == 4


def test_many_prompts_of_one_call_take_linear_time() -> None:
    """A client chooses the number of prompts."""
    server = Server()
    exchange = Exchange({"type": "http", "method": "POST", "path": "/v1/completions"})
    token = current.set(exchange)
    ids = [f"cmpl-{number}" for number in range(20_000)]
    begun = time.monotonic()
    for name in ids:
        server.add(name)
        server.calls.made.clear()
    exchange.delivered = time.monotonic()
    for name in ids:
        server.processor.abort_requests([name], internal=True)
        server.calls.made.clear()
    current.reset(token)
    assert len(server.submitted) == len(ids)
    assert not getattr(server.processor, OPEN)
    assert not exchange.flights
    assert time.monotonic() - begun < 20  # 0.5 s; with quadratic time, minutes


def test_a_session_with_streaming_input_is_not_captured() -> None:
    calls = fake.Calls()

    class OutputProcessor(fake.output_processor_class(calls)):  # type: ignore[misc]
        def add_request(self, request: Any, prompt: Any, parent_req: Any = None) -> Any:
            if request.request_id in self.request_states:
                return calls.note("add_request", self, request, prompt, parent_req=parent_req)
            return super().add_request(request, prompt, parent_req)

    server = Server(calls, OutputProcessor)
    before = failures()
    for is_resumable in (True, True, False):  # the last input is the end of the session
        state = server.add(
            "session", lambda _, request, is_r=is_resumable: setattr(request, "resumable", is_r)
        )
    calls.check(server.stats, "update_from_events", None, "session", [], True, state.stats, None)
    assert not len(server.capture.in_flight)
    calls.check(server.processor, "_finish_request", object(), state)
    server.serve()
    assert sorted(record.outcome for record in server.records) == ["abort", "error", "stop"]
    assert failures() == before


def test_requests_with_unseen_ends_are_dropped() -> None:
    server = Server()
    for number in range(10_000):
        server.add(f"id-{number}")
        server.processor.request_states.clear()
    assert len(getattr(server.processor, OPEN)) < 2000
