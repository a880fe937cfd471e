import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard
from tailspan_vllm.engine_core import (
    encoder_inputs,
    engine_reports,
    link_messages,
    observer,
    waiting_requests,
)
from tailspan_vllm.engine_core.block_hashes import HashReader
from tailspan_vllm.engine_core.link import EngineEnd, FrontEndLink
from tailspan_vllm.engine_core.observer import EngineObserver
from tailspan_vllm.engine_core.queue_obstacles import QueueObstacles
from tailspan_vllm.engine_core.queue_waits import Queue
from tailspan_vllm.engine_core.scheduler_hooks import install_on
from tailspan_vllm.engine_core.step_billing import Billing
from tailspan_vllm.engine_core.step_ledger import Ledger
from tailspan_vllm.engine_core.step_model import FittedStepModel
from tailspan_vllm.engine_core.waiting_requests import WaitingRequests
from tailspan_vllm.engine_state.hardware import UNKNOWN

from tests.instrumentation import fake_vllm as fake
from tests.instrumentation.fake_vllm import failures

OURS = [
    each
    for owner in (
        *(EngineObserver, Ledger, Billing, FittedStepModel, Queue, QueueObstacles, EngineEnd),
        *(HashReader, WaitingRequests, waiting_requests),
        *(observer, link_messages, engine_reports, encoder_inputs),
    )
    for each in fake.functions_of(owner)
]


class Engine:
    def __init__(self, *, calls: fake.Calls | None = None, cls: Any = None) -> None:
        self.calls = calls or fake.Calls()
        self.cls = cls or fake.scheduler_class(self.calls)
        self.observers: list[EngineObserver] = []
        self.missing = install_on(self.cls, self._observer)
        self.scheduler = self.cls()
        self.now = time.monotonic()

    def _observer(self, scheduler: Any) -> EngineObserver:
        observer = EngineObserver(EngineEnd(secrets.token_hex(8), "engine-0"), 0, ladders=True)
        self.observers.append(observer)
        return observer

    def close(self) -> None:
        for each in self.observers:
            each._link.close()

    def call(self, name: str, answer: Any, *args: Any, **kwargs: Any) -> None:
        self.calls.check(self.scheduler, name, answer, *args, **kwargs)

    def run(self, steps: int = 3, changed: Any = None) -> None:
        """Run two requests, one preempted and one aborted, to call every hook."""
        changed = changed or (lambda kind, thing: thing)
        requests = {
            name: changed("request", fake.request(name)) for name in ("one", "other", "late")
        }
        self.scheduler.requests.update(requests)
        for each in requests.values():
            self.call("add_request", object(), each)
        new: tuple[str, ...] = ("one", "other")
        self.scheduler.waiting[:] = [requests["late"]]
        for _ in range(steps):
            counts = dict.fromkeys(("one", "other"), 8 if new else 1)
            for name in counts:
                if hasattr(requests[name], "num_computed_tokens"):
                    requests[name].num_computed_tokens = 8
            output = changed("output", fake.output(counts, new))
            new = ()
            self.call("schedule", output, throttle_prefills=True)
            self.now += 0.5
            results = changed("results", {0: SimpleNamespace(timestamp=self.now)})
            self.call("update_from_output", results, output, object())
        self.call("_preempt_request", object(), requests["other"], 1.0)
        self.call("_free_request", object(), requests["one"], delay_free_blocks=True)
        self.call("_free_request", object(), requests["late"])
        self.call("schedule", changed("output", fake.output({})))


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the vLLM version and hardware that an engine core reports; enable block hashes."""
    fake.modules(monkeypatch, vllm__v1__core__kv_cache_utils={"NONE_HASH": b"none"})
    monkeypatch.setattr(engine_reports, "machine_of", lambda *_: UNKNOWN)


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def test_an_engine_can_be_connected_to_before_its_first_request() -> None:
    """If the front end connected only at the first request, and another engine got it, this
    engine's first accounts would be lost."""
    token = secrets.token_hex(8)
    cls = fake.scheduler_class(fake.Calls())
    link: list[EngineEnd] = []

    def make(scheduler: Any) -> EngineObserver:
        link.append(EngineEnd(token, "engine-1"))
        return EngineObserver(link[0], 1)

    install_on(cls, make)
    cls()
    with closing(FrontEndLink(token)) as front:
        front.discover()
        assert front.connections == 1
    assert not link[0].greeting  # the start has not ended
    link[0].close()


def test_a_run_without_faults_counts_no_failure(engine: Engine) -> None:
    """Without this test, the tests below would prove nothing."""
    before = dict(guard.failures)
    engine.run()
    assert engine.missing == []
    assert {k: v for k, v in guard.failures.items() if v != before.get(k)} == {}
    assert engine.observers[0]._link._log


@pytest.mark.parametrize(("owner", "name"), OURS, ids=lambda each: getattr(each, "__name__", each))
def test_whichever_of_our_functions_raises(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    boom = fake.raising(called, name)
    is_property = isinstance(vars(owner)[name], property)
    monkeypatch.setattr(owner, name, property(boom) if is_property else boom)
    engine, before = Engine(), failures()
    try:
        engine.run()
    finally:
        monkeypatch.undo()
        engine.close()
    assert (failures() > before) == bool(called)


def things() -> list[tuple[str, str]]:
    """Return (object, attribute) for each attribute of the objects that vLLM gives to hooks."""
    cls = fake.scheduler_class(fake.Calls())
    of = {
        "scheduler": cls(),
        "request": fake.request(),
        "output": fake.output({"one": 8}, ("one",)),
        "cached": fake.output({}).scheduled_cached_reqs,
        "config": cls().vllm_config,
    }
    return [(kind, name) for kind, thing in of.items() for name in vars(thing)]


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise RuntimeError(name)


CHANGES = {
    "missing": None,
    "none": lambda: None,
    "number": lambda: 3,
    "text": lambda: "text",
    "hostile": Hostile,
    "coroutine-like": lambda: iter(()),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("kind", "attribute"), things())
def test_any_changed_attribute_of_vllm_is_harmless(kind: str, attribute: str, change: str) -> None:
    make = CHANGES[change]

    def alter(thing: Any) -> Any:
        if make is None:
            vars(thing).pop(attribute, None)
        else:
            setattr(thing, attribute, make())
        return thing

    def changed(what: str, thing: Any) -> Any:
        if what == kind:
            alter(thing)
        elif what == "output" and kind == "cached":
            alter(thing.scheduled_cached_reqs)
        return thing

    engine = Engine()
    base = engine.scheduler
    if kind == "config":
        alter(base.vllm_config)
    try:
        if kind == "scheduler":
            # The test reads these attributes, too, so it keeps their original values.
            kept = {name: getattr(base, name) for name in ("requests", "waiting")}
            alter(base)
            engine.scheduler = _Behind(base, kept)
        engine.run(changed=changed)
    finally:
        engine.close()


class _Behind:
    def __init__(self, scheduler: Any, kept: dict[str, Any]) -> None:
        self._scheduler = scheduler
        self.__dict__.update(kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


@pytest.mark.parametrize("results", [None, 3, iter(()), {0: None}, [1], Hostile()])
def test_the_result_of_an_update_is_returned_unchanged(results: Any) -> None:
    engine = Engine()
    try:
        engine.run(changed=lambda what, thing: results if what == "results" else thing)
    finally:
        engine.close()


def test_exceptions_of_the_scheduler_are_passed_on(engine: Engine) -> None:
    engine.run()
    for name, arguments in (
        ("schedule", ()),
        ("update_from_output", (fake.output({}), None)),
        ("add_request", (fake.request("new"),)),
        ("_free_request", (fake.request("new"),)),
        ("_preempt_request", (fake.request("new"), 1.0)),
    ):
        error = engine.calls.raised[name] = KeyError(name)
        before = len(engine.calls.made)
        with pytest.raises(KeyError) as raised:
            getattr(engine.scheduler, name)(*arguments)
        assert raised.value is error
        assert len(engine.calls.made) == before + 1
    engine.calls.raised.clear()
    engine.run()  # hooks of this engine still work


def test_a_later_vllm_may_rename_and_reorder_parameters() -> None:
    calls = fake.Calls()

    class Scheduler(fake.scheduler_class(calls)):  # type: ignore[misc]  # made by a function
        def schedule(self, more: int, *, other: int = 0) -> Any:
            return calls.note("schedule", self, more, other=other)

        def update_from_output(self, new: Any, *, scheduler_output: Any, out: Any = None) -> Any:
            return calls.note("update_from_output", self, new, scheduler_output=scheduler_output)

        def add_request(self, req: Any, new: int = 0, **more: Any) -> Any:
            return calls.note("add_request", self, req, new=new, **more)

        def _free_request(self, *, new: int = 0, request: Any) -> Any:
            return calls.note("_free_request", self, new=new, request=request)

    engine = Engine(calls=calls, cls=Scheduler)
    before = failures()
    one = fake.request("one")
    engine.scheduler.requests["one"] = one
    engine.call("add_request", object(), req=one, new=1, extra=2)
    one.num_computed_tokens = 8
    output = fake.output({"one": 8}, ("one",))
    engine.call("schedule", output, 5, other=6)
    engine.call("_free_request", object(), new=1, request=one)
    results = {0: SimpleNamespace(timestamp=engine.now + 1)}
    engine.call("update_from_output", results, 7, scheduler_output=output)
    assert engine.missing == []
    assert failures() == before
    assert engine.observers[0]._link._log  # an account shows that every hook could read its data
    with pytest.raises(TypeError):
        engine.scheduler.add_request(new=1)  # the error of vLLM without the plugin
    engine.close()


@pytest.mark.parametrize("name", ["schedule", "update_from_output", "_free_request"])
def test_without_a_required_method_nothing_is_wrapped(name: str) -> None:
    async def coroutine(self: Any) -> None:
        """Return a coroutine, which is not the result that the hook expects."""

    for replacement in (None, coroutine):
        cls = fake.scheduler_class(fake.Calls())
        setattr(cls, name, replacement)
        as_they_were = dict(vars(cls))
        (missing,) = install_on(cls, lambda _: pytest.fail("this function must not be called"))
        assert f"Scheduler.{name}" in missing
        assert dict(vars(cls)) == as_they_were


def test_a_ledger_that_fails_repeatedly_is_disabled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine.run()
    observer = engine.observers[0]
    before = guard.failures.pop("schedule", 0)
    called: list[str] = []
    monkeypatch.setattr(observer, "scheduled", fake.raising(called, "scheduled"))
    caplog.set_level("WARNING", "vllm.tailspan")
    for _ in range(3 * guard.LIMIT):
        engine.call("schedule", fake.output({"one": 1}))
    assert len(called) == guard.LIMIT
    assert guard.failures["schedule"] == guard.LIMIT
    reported = [record.message for record in caplog.records]
    assert reported == [
        "tailspan: schedule failed; vLLM continues without it",
        "tailspan: step ledger: switched off; vLLM continues: schedule failed 100 times in a row",
    ]
    assert observer._link._listener.fileno() == -1
    engine.run()
    assert len(engine.observers) == 1
    guard.failures["schedule"] += before


def test_a_failure_drops_the_accounts_of_running_requests(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An account without one of its steps would be wrong without any sign."""
    engine.run()
    observer = engine.observers[0]
    engine.scheduler.requests["new"] = fake.request("new")
    engine.call("add_request", object(), engine.scheduler.requests["new"])
    dropped = observer._no_account
    with monkeypatch.context() as patched:
        patched.setattr(observer._waiting, "decided", fake.raising([], "decided"))
        engine.call("schedule", fake.output({"other": 1}))
    assert observer._no_account == dropped + 1  # "other" was tracked
    output = fake.output({"other": 1, "new": 8}, ("new",))
    engine.call("schedule", output)
    assert set(observer._tracks) == {"new"}
    put: list[bytes] = []
    monkeypatch.setattr(observer._link, "put", put.append)
    engine.call("_free_request", object(), engine.scheduler.requests["other"])
    engine.call("_free_request", object(), engine.scheduler.requests["new"])
    engine.now += 1
    engine.call("update_from_output", {0: SimpleNamespace(timestamp=engine.now)}, output, None)
    assert [link_messages.decode(each)[0] for each in put] == ["new"]  # type: ignore[index]
    assert not observer._untracked


def test_a_request_that_vllm_refuses_is_forgotten(engine: Engine) -> None:
    """vLLM's `add_request` raises an exception, so no other call ends the request."""
    engine.run()
    (watching,) = engine.observers
    queue = watching._waiting.queue
    assert queue is not None
    before, failed = len(queue), dict(guard.failures)
    engine.calls.raised["add_request"] = ValueError("too long")
    with pytest.raises(ValueError, match="too long"):
        engine.scheduler.add_request(fake.request("refused"))
    assert len(queue) == before
    assert dict(guard.failures) == failed


def test_a_refused_continuation_keeps_its_request(engine: Engine) -> None:
    engine.run()
    queue = engine.observers[0]._waiting.queue
    assert queue is not None
    session = fake.request("session")
    engine.scheduler.add_request(session)
    engine.scheduler.requests["session"] = session
    known = len(queue)
    engine.calls.raised["add_request"] = ValueError("too long")
    with pytest.raises(ValueError, match="too long"):
        engine.scheduler.add_request(session)
    assert len(queue) == known
