"""The link between an engine core and its front ends, over real sockets."""

import secrets
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from tailspan_vllm.billing import Bill
from tailspan_vllm.join import EngineJoin
from tailspan_vllm.ledger import Account
from tailspan_vllm.link import (
    BACKLOG,
    EngineEnd,
    FrontEnd,
    Identity,
    decode,
    encode_account,
    encode_identity,
    encode_sample,
)
from tailspan_vllm.machine import Machine
from tailspan_vllm.metrics import EngineState
from tailspan_vllm.names import LONGEST_STEP, RUNNING, STEPS
from tailspan_vllm.parts import Parts, QueueParts
from tailspan_vllm.queueing import Waited
from tailspan_vllm.record import RequestRecord

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")

ACCOUNT = Account(
    scheduled=100.0,
    first_token=115.0,
    last_token=None,
    prefill=Parts(1.0, 2.0, 3.0, 4.0, 5.0),
    decode=None,
    itl_max_s=None,
    waited=Waited(99.125, QueueParts(0.5, 0.0, 0.25, 0.0, 0.125)),
    others_prefill_tokens_max=512,
    bill=Bill(2.5, 0.125),
)


@pytest.fixture
def token() -> str:
    """A server's token, of its own for each test."""
    return secrets.token_hex(8)


@pytest.fixture
def engine(token: str) -> Iterator[EngineEnd]:
    """An engine's end that listens."""
    with closing(EngineEnd(token, "engine-0")) as end:
        yield end


@pytest.fixture
def join(token: str, engine: EngineEnd) -> Iterator[EngineJoin]:
    """A front end that has found the engine."""
    with closing(EngineJoin(token)) as front:
        front.read()
        yield front


def a_record(request_id: str) -> RequestRecord:
    """A request that the engine ran."""
    return RequestRecord(
        received=0.0,
        delivered=1.0,
        wall_offset_ns=0,
        outcome="stop",
        basis="http",
        scheduled=0.1,
        engine_request_id=request_id,
        awaits_account=True,
    )


def test_an_account_arrives_as_it_was_sent() -> None:
    """Unknown parts stay unknown on the way."""
    gave_up = Account(waited=ACCOUNT.waited)
    for account in (ACCOUNT, gave_up, Account(scheduled=1.0, bill=Bill(0.0, 0.0)), Account()):
        assert decode(encode_account(3, "chatcmpl-é-1", account)) == ("chatcmpl-é-1", 3, account)
    sample = {"engine": 1, "totals": {STEPS: 3}, "gauges": {}}
    assert decode(encode_sample(sample)) == sample
    with pytest.raises(ValueError, match="unknown message"):
        decode(b"?")


def test_every_front_end_hears_of_requests_and_one_of_totals(token: str, engine: EngineEnd) -> None:
    """What is counted must not be counted by each API server anew."""
    with closing(FrontEnd(token)) as one, closing(FrontEnd(token)) as other:
        for front in (one, other):
            front.discover()
            assert front.connected
        engine.put(encode_account(3, "a", ACCOUNT))
        engine.put(encode_account(3, "b", ACCOUNT))
        engine.flush()
        engine.tell_one(encode_sample({"engine": 0}))
        assert sorted(len(front.read()) for front in (one, other)) == [2, 3]


def test_the_engine_never_waits_and_its_memory_is_bounded(token: str, engine: EngineEnd) -> None:
    """Without a listener nothing is kept; a listener that does not read costs no more."""
    for _ in range(BACKLOG + 10):
        engine.put(b"A")
    assert engine.dropped == 10
    engine.flush()
    with closing(FrontEnd(token)) as front:
        front.discover()
        for _ in range(50):
            for _ in range(BACKLOG):
                engine.put(encode_account(3, "x" * 40, ACCOUNT))
            engine.flush()
        assert engine.dropped > 10
        assert front.read()


def test_who_connects_late_hears_of_what_was_just_said(token: str, engine: EngineEnd) -> None:
    """The engine's first requests are over before the two have found each other."""
    engine.put(encode_account(3, "a", ACCOUNT))
    engine.flush()
    with closing(FrontEnd(token)) as late:
        late.discover()
        engine.flush()
        assert [decode(message) for message in late.read()] == [("a", 3, ACCOUNT)]


def test_a_front_end_outlives_its_engine(token: str, engine: EngineEnd) -> None:
    """An engine core that died is forgotten."""
    with closing(FrontEnd(token)) as front:
        front.discover()
        engine.flush()
        engine.close()
        front.read()
        assert not front.connected


def test_a_record_waits_for_its_account_and_takes_it_once(
    engine: EngineEnd, join: EngineJoin
) -> None:
    """The two halves meet by the engine's request id."""
    record = a_record("a")
    assert not join.apply(record)
    engine.put(encode_account(3, "a", ACCOUNT))
    engine.flush()
    join.read()
    assert join.apply(record)
    assert (record.prefill_parts, record.engine) == (ACCOUNT.prefill, 3)
    assert ACCOUNT.waited is not None
    assert (record.queue_parts, record.others_prefill_tokens_max) == (ACCOUNT.waited.parts, 512)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (98.0, (None, None, None)),
        (99.5, (99.125, None, None)),
        (110.0, (99.125, 100.0, None)),
        (120.0, (99.125, 100.0, 115.0)),
    ],
)
def test_who_left_unseen_had_come_as_far_as_its_engine_says(
    engine: EngineEnd,
    join: EngineJoin,
    left: float,
    told: tuple[float | None, float | None, float | None],
) -> None:
    """Until its client left, though the engine heard of that later, and went on with it."""
    record = a_record("a")
    record.received, record.handed, record.delivered = 97.0, 97.5, left
    record.outcome, record.scheduled, record.left_unseen = "abort", None, True
    assert not join.apply(record)
    engine.put(encode_account(3, "a", ACCOUNT))
    engine.flush()
    join.read()
    assert join.apply(record)
    assert ACCOUNT.bill is not None
    assert (record.billed_s, record.wasted_s) == ACCOUNT.bill
    assert (record.queued, record.scheduled, record.first_token) == told
    assert record.delivered == left


def test_who_gave_up_in_the_queue_has_its_wait_and_no_bill(
    engine: EngineEnd, join: EngineJoin
) -> None:
    """Its life is not the front end's: most of it was the queue."""
    record = a_record("a")
    record.received, record.handed, record.delivered = 97.0, 97.5, 99.75
    record.outcome, record.scheduled, record.left_unseen = "abort", None, True
    engine.put(encode_account(3, "a", Account(waited=ACCOUNT.waited)))
    engine.flush()
    join.read()
    assert join.apply(record)
    assert ACCOUNT.waited is not None
    assert (record.queued, record.scheduled, record.billed_s) == (99.125, None, None)
    assert record.queue_parts == ACCOUNT.waited.parts


def test_without_an_engine_to_ask_nothing_waits(token: str) -> None:
    """Engines on another machine have no link; their requests are told at once."""
    assert EngineJoin(token).apply(a_record("a"))
    assert EngineJoin(None).apply(a_record("a"))


def test_the_longest_step_is_told_for_its_own_interval_only(
    engine: EngineEnd, join: EngineJoin
) -> None:
    """A gauge of an interval must not linger."""
    state = EngineState(0, 0)
    sample = {"engine": 0, "totals": {STEPS: 3}, "gauges": {LONGEST_STEP: 0.5}}
    engine.tell_one(encode_sample(sample))
    join.read()
    join.tell(state)
    assert (state.totals[STEPS], state.gauges[LONGEST_STEP]) == (3, 0.5)
    join.tell(state)
    assert (state.totals[STEPS], state.gauges.get(LONGEST_STEP)) == (3, None)


IDENTITY = Identity(
    0,
    10**18,
    "m",
    "c0ffee00",
    "0.32.0",
    {"scheduler.max_num_seqs": 16},
    4242,
    Machine("NVIDIA H100 80GB HBM3", 2, {"layers": 32}),
)


def test_a_front_end_hears_first_whom_it_talks_to(token: str, engine: EngineEnd) -> None:
    """Whenever it comes; the accounts of the requests before follow."""
    engine.greeting = encode_identity(IDENTITY)
    engine.put(encode_account(0, "a", ACCOUNT))
    engine.flush()
    with closing(FrontEnd(token)) as front:
        front.discover()
        engine.flush()
        told = [decode(message) for message in front.read()]
    assert told[0] == IDENTITY
    assert len(told) == 2


def test_a_record_of_a_front_end_that_knows_no_model_gets_its_engines(
    token: str, engine: EngineEnd
) -> None:
    """An offline `LLM` has no stat logger: even its first row is told whole."""
    engine.greeting = encode_identity(IDENTITY)
    engine.put(encode_account(0, "a", ACCOUNT))
    first, unscheduled = a_record("a"), a_record("b")
    unscheduled.awaits_account = False
    with closing(EngineJoin(token)) as front:
        front.read()
        engine.flush()
        front.read()
        assert front.apply(first)
        assert front.apply(unscheduled)
        assert (front.process_of(0), front.process_of(1)) == (4242, None)
        (state,) = front.unclaimed({})
        refused = a_record("c")
        refused.engine_request_id = None
        assert front.apply(refused)
    assert refused.model is None  # it asked for a model that is not there
    for record in (first, unscheduled):
        assert (record.model, record.config) == ("m", "c0ffee00")
    assert (state.model, state.config, state.version) == ("m", "c0ffee00", "0.32.0")
    assert state.arguments == {"scheduler.max_num_seqs": 16}


def test_an_engine_without_a_stat_logger_tells_how_it_stands(token: str, engine: EngineEnd) -> None:
    """With every sample anew; one that has a stat logger is not told twice."""
    engine.greeting = encode_identity(IDENTITY)
    with closing(EngineJoin(token)) as front:
        front.read()
        engine.flush()
        front.read()
        (state,) = front.unclaimed({})
        for running in (3, 5):
            sample = {"engine": 0, "state": {RUNNING: running}, "totals": {}, "gauges": {}}
            engine.tell_one(encode_sample(sample))
            front.read()
            front.tell(state)
            assert state.gauges[RUNNING] == running
