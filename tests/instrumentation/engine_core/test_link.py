import json
import os
import secrets
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailspan_vllm import guard
from tailspan_vllm.engine_core.block_hashes import BlockHashes
from tailspan_vllm.engine_core.link import (
    FRONT_ENDS_LIMIT,
    LOG_BYTES,
    MESSAGE_BYTES,
    RECENT,
    EngineEnd,
    FrontEndLink,
    _unframed,
)
from tailspan_vllm.engine_core.link_messages import (
    Identity,
    RequestAccount,
    decode,
    encode_account,
    encode_identity,
    encode_sample,
    request_of,
)
from tailspan_vllm.engine_core.queue_waits import QueueWait
from tailspan_vllm.engine_core.step_billing import BilledTime
from tailspan_vllm.engine_core.step_ledger import RequestEngineTime
from tailspan_vllm.engine_state.hardware import Machine
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.export.account_join import AccountJoin
from tailspan_vllm.names import LONGEST_STEP, RUNNING, STEPS
from tailspan_vllm.request.parts import HeldParts, KvLoad, RequestPhaseParts, RequestQueueParts
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.request.text_limits import bounded_id
from tailspan_vllm.start_up.instants import EngineInstants, WorkerStart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")

ACCOUNT = RequestEngineTime(
    scheduled=100.0,
    first_token=115.0,
    last_token=130.0,
    prefill=RequestPhaseParts(1.0, 2.0, 3.0, 4.0, 5.0),
    decode=RequestPhaseParts(6.0, 7.0, 8.0, 9.0, 10.0),
    itl_max_s=1.5,
    waited=QueueWait(
        99.125, RequestQueueParts(0.5, 0.0, 0.25, 4.0, 0.125), HeldParts(0.5, 2.0, 1.0)
    ),
    others_prefill_tokens_max=512,
    external_cached_tokens=64,
    bill=BilledTime(2.5, 0.125),
    block_hashes=BlockHashes(16, b"rootone.two."),
    kv_load=KvLoad(1_000_000, "disk"),
    cached_tokens=80,
    encoder_s=0.75,
)
"""An account with all fields, so that the tests find a field that the link loses."""


@pytest.fixture
def token() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def engine(token: str) -> Iterator[EngineEnd]:
    with closing(EngineEnd(token, "engine-0")) as end:
        yield end


@pytest.fixture
def join(token: str, engine: EngineEnd) -> Iterator[AccountJoin]:
    with closing(AccountJoin(token)) as front:
        front.read()
        yield front


def a_record(request_id: str) -> RequestRecord:
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


def deliver(engine: EngineEnd, join: AccountJoin, *request_ids: str) -> None:
    for each in request_ids:
        engine.put(encode_account(3, each, ACCOUNT))
    engine.flush()
    join.read()


def test_an_account_arrives_as_it_was_sent() -> None:
    assert None not in ACCOUNT
    gave_up = RequestEngineTime(waited=ACCOUNT.waited)
    for account in (
        ACCOUNT,
        gave_up,
        RequestEngineTime(scheduled=1.0, bill=BilledTime(0.0, 0.0)),
        RequestEngineTime(),
    ):
        assert decode(encode_account(3, "chatcmpl-é-1", account)) == ("chatcmpl-é-1", 3, account)
    sample = {"engine": 1, "totals": {STEPS: 3}, "gauges": {}}
    assert decode(encode_sample(sample)) == sample
    with pytest.raises(ValueError, match="unknown message"):
        decode(b"?")


def test_requests_go_to_all_front_ends_and_totals_to_one(token: str, engine: EngineEnd) -> None:
    """If totals went to all API servers, each would count them."""
    with closing(FrontEndLink(token)) as one, closing(FrontEndLink(token)) as other:
        for front in (one, other):
            front.discover()
            assert front.connections
        engine.put(encode_account(3, "a", ACCOUNT))
        engine.put(encode_account(3, "b", ACCOUNT))
        engine.flush()
        engine.send_to_one(encode_sample({"engine": 0}))
        assert sorted(len(front.read()) for front in (one, other)) == [2, 3]


def ids_read(front: FrontEndLink) -> list[str]:
    return [
        reported.request_id
        for reported in map(decode, front.read())
        if isinstance(reported, RequestAccount)
    ]


def flush_and_read(engine: EngineEnd, front: FrontEndLink) -> list[str]:
    ids: list[str] = []
    while True:
        engine.flush()
        came = ids_read(front)
        if not came:
            return ids
        ids += came


def test_the_engine_never_waits_and_its_memory_is_bounded(token: str, engine: EngineEnd) -> None:
    for number in range(20_000):
        engine.put(encode_account(3, f"{number}", ACCOUNT))
    assert engine._log_bytes <= LOG_BYTES
    engine.flush()
    assert engine.dropped == 0
    assert len(engine._log) == RECENT


def test_a_slow_front_end_loses_nothing_for_a_while(token: str, engine: EngineEnd) -> None:
    """The engine sends for 14 s at 200 requests per second. The kernel buffers ten packets."""
    with closing(FrontEndLink(token)) as slow, closing(FrontEndLink(token)) as quick:
        for front in (slow, quick):
            front.discover()
        taken: list[str] = []
        for flush in range(140):
            for number in range(20):
                engine.put(encode_account(3, f"chatcmpl-{flush}-{number}", ACCOUNT))
            engine.flush()
            taken += ids_read(quick)
        assert len(taken) == 2800  # the slow front end does not delay the fast one
        assert flush_and_read(engine, slow) == taken
        assert engine.dropped == 0
        assert len(engine._log) <= 2 * RECENT


def test_messages_that_a_front_end_loses_are_counted(token: str, engine: EngineEnd) -> None:
    with closing(FrontEndLink(token)) as stopped, closing(FrontEndLink(token)) as reading:
        for front in (stopped, reading):
            front.discover()
        total = 0
        for _ in range(400):
            for _ in range(100):
                engine.put(encode_account(3, f"{total}-{'x' * 40}", ACCOUNT))
                total += 1
            engine.flush()
            assert len(ids_read(reading)) == 100
            assert engine._log_bytes <= LOG_BYTES
        got = flush_and_read(engine, stopped)
        assert engine.dropped == total - len(got) > 20_000
        assert got[-1].startswith(f"{total - 1}-")  # the newest messages are kept


@pytest.mark.parametrize("length", [300_000, 40_000, 257])
def test_long_ids_are_shortened_and_join(engine: EngineEnd, join: AccountJoin, length: int) -> None:
    long = "\udcff" + "x" * length
    deliver(engine, join, "before", long, "after")
    for request_id in ("before", bounded_id(long), "after"):
        assert join.apply(a_record(request_id))
    assert engine.dropped == 0


def test_an_unsendable_message_is_dropped_and_counted(token: str, engine: EngineEnd) -> None:
    with closing(FrontEndLink(token)) as front:
        front.discover()
        engine.put(b"A" + b"x" * MESSAGE_BYTES)
        engine.put(encode_account(3, "a", ACCOUNT))
        engine.send_to_one(b"S" + b"x" * MESSAGE_BYTES)
        engine.flush()
        assert ids_read(front) == ["a"]
        assert engine.dropped == 2
    with closing(FrontEndLink(token)) as later:
        later.discover()
        engine.flush()
        assert ids_read(later) == ["a"]


def test_a_packet_over_the_kernels_limit_does_not_close_the_connection(
    token: str, engine: EngineEnd
) -> None:
    """A machine's limit may be lower than the plugin's."""
    with closing(FrontEndLink(token)) as front:
        front.discover()
        engine.flush()
        connection = engine._fronts[0].connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for number in range(100):
            engine.put(encode_account(3, f"{number}", ACCOUNT))
        engine.flush()
        engine.put(encode_account(3, "after", ACCOUNT))
        engine.flush()
        assert ids_read(front) == ["after"]
        assert engine.dropped == 100


def test_a_front_end_that_hangs_up_is_removed_once(token: str, engine: EngineEnd) -> None:
    with closing(FrontEndLink(token)) as stays:
        for _ in range(3):
            leaves = FrontEndLink(token)
            leaves.discover()
            stays.discover()
            engine.flush()
            leaves.close()
            for number in range(2000):
                engine.put(encode_account(3, f"{number}", ACCOUNT))
            engine.send_to_one(encode_sample({"engine": 0}))
            engine.flush()
            assert len(engine._fronts) == 1
            flush_and_read(engine, stays)
    engine.put(encode_account(3, "x", ACCOUNT))
    engine.flush()
    engine.flush()
    assert not engine._fronts


def test_connections_are_bounded_and_counted(token: str, engine: EngineEnd) -> None:
    before = guard.failures["link.refused"]
    fronts: list[FrontEndLink] = []
    try:
        while len(fronts) < FRONT_ENDS_LIMIT + 5:
            fronts.append(FrontEndLink(token))
            fronts[-1].discover()
            engine.flush()
        assert len(engine._fronts) == FRONT_ENDS_LIMIT
        assert guard.failures["link.refused"] == before + 5
    finally:
        for front in fronts:
            front.close()


def test_another_users_process_is_refused_at_either_end(
    token: str, engine: EngineEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(FrontEndLink(token)) as mine, closing(FrontEndLink(token)) as other:
        engine.put(encode_account(3, "a", ACCOUNT))
        mine.discover()
        engine.flush()
        before = guard.failures["link.refused"]
        other.discover()
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        engine.flush()
        engine.send_to_one(encode_sample({"engine": 0}))
        assert (other.read(), len(engine._fronts)) == ([], 1)
        assert not other.connections
        assert guard.failures["link.refused"] == before + 1
        for _ in range(3):
            other.discover()
        assert not other.connections
        assert guard.failures["link.refused"] == before + 2
        assert ids_read(mine) == ["a"]


def test_a_search_for_engines_never_waits_and_reads_any_name(token: str, engine: EngineEnd) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as odd:
        odd.bind(b"\0\xff\xfe\n" + token.encode())
        waiting = []
        for _ in range(100):
            waiting.append(FrontEndLink(token))
            waiting[-1].discover()
        assert not waiting[-1].connections
        for front in waiting:
            front.close()
    for _ in range(5):
        engine.flush()
    with closing(FrontEndLink(token)) as front:
        front.discover()
        assert front.connections


MALFORMED = [
    b"",
    b"?",
    b"A",
    b"A" + bytes(201) + b"\xff",
    b"A" + bytes(201) + b"x" * 5000,
    b"A" + bytes(4) + struct.pack("<24d", *[float("inf")] * 24) + bytes(5),
    b"A" + bytes(196) + struct.pack("<IB", 16, 3) + b"rootone.two",
    b"A" + bytes(196) + struct.pack("<IB", 16, 255) + bytes(2000),
    b"S",
    b"S[]",
    b"S{}",
    b'S{"engine": []}',
    b'S{"engine": NaN}',
    b'S{"engine": 0, "totals": {"unheard.of": 1}}',
    b'S{"engine": 0, "totals": 3}',
    b'S{"engine": 0, "gauges": {"%s": "x"}}' % STEPS.encode(),
    b'S{"engine": 0, "failures": {"x": null}}',
    b"S" + b"[" * 20_000,
    b"I{}",
    b"I[1, 2]",
    b'I[0, 0, "m", "c", "v", {"a": []}, 1, [null, 1, {}]]',
    b'I[0, 0, "m", "c", 7, {}, 1, [null, 1, {}]]',
]


@pytest.mark.parametrize("message", MALFORMED, ids=lambda each: repr(each[:40]))
def test_malformed_messages_count(engine: EngineEnd, join: AccountJoin, message: bytes) -> None:
    with pytest.raises(ValueError, match=r"malformed|unknown|codec|Expecting"):
        decode(message)
    before = guard.failures["link.malformed"]
    for each in (encode_account(3, "a", ACCOUNT), message, encode_account(3, "b", ACCOUNT)):
        engine.put(each)
    engine.flush()
    join.read()
    assert join.apply(a_record("a"))
    assert join.apply(a_record("b"))
    if message[:1] == b"A":
        with suppress(ValueError):  # an account without a request id is malformed
            of_bad = a_record(request_of(message).decode())
            assert join.apply(of_bad)  # no other account will arrive
            assert of_bad.prefill_parts is None
    assert guard.failures["link.malformed"] == before + 1


@given(st.binary(max_size=300), st.sampled_from([b"", b"A", b"S", b"I"]))
def test_no_bytes_at_all_break_the_reader(noise: bytes, kind: bytes) -> None:
    with suppress(ValueError):
        decode(kind + noise)
    packet = bytearray(noise)
    assert sum(4 + len(each) for each in _unframed(packet, len(packet))) <= len(packet)


def test_a_ladder_needs_the_key(token: str, engine: EngineEnd) -> None:
    """The link has hashes of prompts, but a record has only digests made with the key."""
    ladders = []
    for key in ("the key of this deployment", "the key of another one", None):
        with closing(AccountJoin(token, key)) as front:
            front.read()
            deliver(engine, front, "a")
            record = a_record("a")
            assert front.apply(record)
            ladders.append(record.prefix_ladder)
    mine, other, without = ladders
    assert without is None
    assert mine is not None
    assert mine.startswith("16:")
    assert len(mine) == 3 + 4 * 3
    assert mine != other


def test_a_late_front_end_gets_recent_messages(token: str, engine: EngineEnd) -> None:
    """The first requests may end before both sides are connected."""
    engine.put(encode_account(3, "a", ACCOUNT))
    engine.flush()
    with closing(FrontEndLink(token)) as late:
        late.discover()
        engine.flush()
        assert [decode(message) for message in late.read()] == [("a", 3, ACCOUNT)]


def test_a_front_end_continues_after_its_engine_ends(token: str, engine: EngineEnd) -> None:
    with closing(FrontEndLink(token)) as front:
        front.discover()
        engine.flush()
        engine.close()
        front.read()
        assert not front.connections


def test_a_record_waits_for_its_account_once(engine: EngineEnd, join: AccountJoin) -> None:
    record = a_record("a")
    record.last_token = ACCOUNT.last_token
    assert not join.apply(record)
    deliver(engine, join, "a")
    assert join.apply(record)
    assert (record.prefill_parts, record.engine) == (ACCOUNT.prefill, 3)
    assert ACCOUNT.waited is not None
    assert record.queue_parts == ACCOUNT.waited.parts
    instants = {"scheduled", "first_token", "last_token"}  # the front end measures its own
    for name in {*RequestEngineTime._fields} & {
        each.name for each in fields(RequestRecord)
    } - instants:
        assert getattr(record, name) == getattr(ACCOUNT, name), name


def an_unseen_abort(left: float) -> RequestRecord:
    record = a_record("a")
    record.received, record.handed, record.delivered = 97.0, 97.5, left
    record.outcome, record.scheduled, record.left_early = "abort", None, True
    return record


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (98.0, (None, None, None)),
        (99.5, (99.125, None, None)),
        (110.0, (99.125, 100.0, None)),
        (120.0, (99.125, 100.0, 115.0)),
    ],
)
def test_an_unseen_abort_gets_the_engines_instants(
    engine: EngineEnd,
    join: AccountJoin,
    left: float,
    expected: tuple[float | None, float | None, float | None],
) -> None:
    record = an_unseen_abort(left)
    assert not join.apply(record)
    deliver(engine, join, "a")
    assert join.apply(record)
    assert ACCOUNT.bill is not None
    assert (record.billed_s, record.wasted_s) == ACCOUNT.bill
    assert (record.queued, record.scheduled, record.first_token) == expected
    assert record.delivered == left


@pytest.mark.parametrize(
    ("unread_s", "expected"), [(0.0, 1.5), (0.25, 1.5), (1.5, None), (2.0, None)]
)
@pytest.mark.parametrize("left_early", [False, True])
def test_a_gap_after_the_last_token_that_the_client_received_is_not_reported(
    engine: EngineEnd,
    join: AccountJoin,
    unread_s: float,
    expected: float | None,
    left_early: bool,
) -> None:
    """The engine runs further steps before it reads the abort after a stop string."""
    assert ACCOUNT.last_token is not None
    last = ACCOUNT.last_token - unread_s
    record = an_unseen_abort(last) if left_early else a_record("a")
    if left_early:
        expected = None if unread_s else 1.5  # the front end has read no token
    else:
        record.scheduled, record.first_token, record.last_token = 100.0, 115.0, last
        record.delivered = last
    deliver(engine, join, "a")
    assert join.apply(record)
    assert record.itl_max_s == expected
    assert record.others_prefill_tokens_max == (None if expected is None else 512)


def test_an_abort_in_the_queue_has_a_wait_and_no_bill(engine: EngineEnd, join: AccountJoin) -> None:
    record = an_unseen_abort(99.75)
    engine.put(encode_account(3, "a", RequestEngineTime(waited=ACCOUNT.waited)))
    engine.flush()
    join.read()
    assert join.apply(record)
    assert ACCOUNT.waited is not None
    assert (record.queued, record.scheduled, record.billed_s) == (99.125, None, None)
    assert record.queue_parts == ACCOUNT.waited.parts


@pytest.mark.parametrize("own", [4, None])
def test_cached_tokens_come_from_the_account_if_the_front_end_does_not_know_them(
    engine: EngineEnd, join: AccountJoin, own: int | None
) -> None:
    record = a_record("a")
    record.cached_tokens = own
    deliver(engine, join, "a")
    assert join.apply(record)
    assert record.cached_tokens == (80 if own is None else own)


@pytest.mark.parametrize(("own", "stored"), [(81, 81), (1_408, 80)])
def test_cached_tokens_come_from_the_account_if_a_load_failed(
    engine: EngineEnd, join: AccountJoin, own: int, stored: int
) -> None:
    """After a load of the whole prompt, vLLM computes the last token again."""
    record = a_record("a")
    record.cached_tokens = own
    deliver(engine, join, "a")
    assert join.apply(record)
    assert record.cached_tokens == stored


def test_without_an_engine_link_no_record_waits(token: str) -> None:
    """Engines on other machines have no link."""
    assert AccountJoin(token).apply(a_record("a"))
    assert AccountJoin(None).apply(a_record("a"))


def test_the_longest_step_is_of_all_samples_of_one_interval(
    engine: EngineEnd, join: AccountJoin
) -> None:
    for steps, gauges in enumerate(({LONGEST_STEP: 0.5}, {LONGEST_STEP: 0.1}, {})):
        engine.send_to_one(encode_sample({"engine": 0, "totals": {STEPS: steps}, "gauges": gauges}))
    join.read()
    state = EngineState(0, 0)
    join.add_sample(state)
    assert (state.totals[STEPS], state.gauges[LONGEST_STEP]) == (2, 0.5)
    join.add_sample(state)
    assert (state.totals[STEPS], state.gauges.get(LONGEST_STEP)) == (2, None)


@pytest.mark.parametrize("shared", [True, False])
def test_the_load_is_the_engines_own_with_several_api_servers(
    token: str, engine: EngineEnd, shared: bool
) -> None:
    """vLLM sends the statistics of a step to one API server, so the others may have old ones."""
    with closing(AccountJoin(token)) as first, closing(AccountJoin(token)) as second:
        for front in (first, second):
            front.read()
        sample = {"engine": 0, "state": {RUNNING: 0}}
        engine.send_to_one(encode_sample({**sample, "totals": {STEPS: 7}}))
        engine.send_to_others(encode_sample(sample))
        states = [EngineState(0, 0, shared=shared) for _ in range(2)]
        for front, state in zip((first, second), states, strict=True):
            front.read()
            for _ in range(2):  # between two samples, the statistics of an older step arrive
                state.gauges[RUNNING] = 5
                front.add_sample(state)
    assert sorted(state.totals.get(STEPS, 0) for state in states) == [0, 7]
    assert [state.gauges[RUNNING] for state in states] == [0 if shared else 5] * 2


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


def test_the_identity_is_the_first_message(token: str, engine: EngineEnd) -> None:
    engine.greeting = encode_identity(IDENTITY)
    engine.put(encode_account(0, "a", ACCOUNT))
    engine.flush()
    with closing(FrontEndLink(token)) as front:
        front.discover()
        engine.flush()
        reported = [decode(message) for message in front.read()]
    assert reported[0] == IDENTITY
    assert len(reported) == 2


def test_a_record_without_a_model_gets_that_of_its_engine(token: str, engine: EngineEnd) -> None:
    """An offline `LLM` has no stat logger."""
    engine.greeting = encode_identity(IDENTITY)
    engine.put(encode_account(0, "a", ACCOUNT))
    first, unscheduled = a_record("a"), a_record("b")
    unscheduled.awaits_account = False
    with closing(AccountJoin(token)) as front:
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
    assert refused.model is None  # the requested model does not exist
    for record in (first, unscheduled):
        assert (record.model, record.config) == ("m", "c0ffee00")
    assert (state.model, state.config, state.version) == ("m", "c0ffee00", "0.32.0")
    assert state.arguments == {"scheduler.max_num_seqs": 16}


def test_engine_state_arrives_without_a_stat_logger(token: str, engine: EngineEnd) -> None:
    engine.greeting = encode_identity(IDENTITY)
    with closing(AccountJoin(token)) as front:
        front.read()
        engine.flush()
        front.read()
        (state,) = front.unclaimed({})
        for running in (3, 5):
            sample = {"engine": 0, "state": {RUNNING: running}, "totals": {}, "gauges": {}}
            engine.send_to_one(encode_sample(sample))
            front.read()
            front.add_sample(state)
            assert state.gauges[RUNNING] == running


START = EngineInstants(8.0, 15.0, 30.0, 47.0, WorkerStart(2.0, 12.0, 9.0, 5.0))


@pytest.mark.parametrize("start", [START, START._replace(worker=None), None])
def test_an_identity_contains_the_start(start: EngineInstants | None) -> None:
    identity = IDENTITY._replace(start=start)
    assert decode(encode_identity(identity)) == identity


@pytest.mark.parametrize(
    "start",
    [
        [1, 2, 3],
        [1, 2, 3, 4, [1, 2, 3]],
        [1, 2, 3, 4, 5],
        ["1", 2, 3, 4, None],
        [1, 2, 3, float("nan"), None],
        [1, 2, 3, 4, [1, 2, 3, None]],
        {"process": 1},
        7,
    ],
)
def test_a_malformed_start_is_refused(start: Any) -> None:
    fields = [*IDENTITY[:-1], start]
    with pytest.raises(ValueError, match="malformed"):
        decode(b"I" + json.dumps(fields).encode())
