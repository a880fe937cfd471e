"""The messages from an engine core to its front ends.

An account contains what the step ledger measured for one request. Accounts are binary, because they
are frequent. Identities and samples are JSON.
"""

import json
import struct
from math import isfinite, isinf
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

from tailspan_vllm import names
from tailspan_vllm.engine_core.block_hashes import BlockHashes
from tailspan_vllm.engine_core.queue_waits import QueueWait
from tailspan_vllm.engine_core.step_billing import BilledTime
from tailspan_vllm.engine_core.step_ledger import RequestEngineTime
from tailspan_vllm.engine_state.config_fingerprint import Scalar
from tailspan_vllm.engine_state.hardware import Machine
from tailspan_vllm.request.parts import (
    TIERS,
    HeldParts,
    KvLoad,
    RequestPhaseParts,
    RequestQueueParts,
)
from tailspan_vllm.request.prefix_ladder import HASH_BYTES, POSITIONS
from tailspan_vllm.request.text_limits import TEXT_LIMIT, bounded_id
from tailspan_vllm.start_up.instants import EngineInstants, WorkerStart

_NUMBERS: dict[str, type] = {
    name: kind
    for name, hint in get_type_hints(RequestEngineTime).items()
    for kind in (int, float)
    if hint == kind | None
}
_numbers = attrgetter(*_NUMBERS)
_ACCOUNT = struct.Struct(f"<i{22 + len(_NUMBERS)}dBIB")
"""The struct begins with the numbers. Its last fields are the tier of the KV-cache load, the tokens
per block, and the number of hashes. The tier is its index in `TIERS` plus one, or 0 if unknown. The
hashes and the request id follow the struct."""
_NAN = float("nan")
_UNKNOWN = (_NAN,) * 5


class Identity(NamedTuple):
    """An engine's properties, for front ends without a stat logger."""

    engine: int
    started_unix_ns: int
    model: str
    config: str
    version: str
    arguments: dict[str, Scalar]
    process: int
    machine: Machine
    start: EngineInstants | None = None


class RequestAccount(NamedTuple):
    """One request's account, and the engine that sent it."""

    request_id: str
    engine: int
    account: RequestEngineTime


def encode_account(engine: int, request_id: str, account: RequestEngineTime) -> bytes:
    """Encode an account. A long request id is shortened in the same way as in the front end."""
    block_tokens, hashes = account.block_hashes or (0, b"")
    size_bytes, tier = account.kv_load or (None, None)
    held = account.waited.held if account.waited else None
    return (
        b"A"
        + _ACCOUNT.pack(
            engine,
            *(account.prefill or _UNKNOWN),
            *(account.decode or _UNKNOWN),
            *(account.waited.parts if account.waited else _UNKNOWN),
            account.waited.queued if account.waited else _NAN,
            *(account.bill or (_NAN, _NAN)),
            *(held or _UNKNOWN[: len(HeldParts._fields)]),
            _or_nan(size_bytes),
            *map(_or_nan, _numbers(account)),
            0 if tier is None else 1 + TIERS.index(tier),
            block_tokens,
            len(hashes) // HASH_BYTES,
        )
        + hashes
        + bounded_id(request_id).encode()
    )


def encode_sample(sample: dict[str, Any]) -> bytes:
    """Encode an engine's totals and step model."""
    return b"S" + json.dumps(sample).encode()


def encode_identity(identity: Identity) -> bytes:
    """Encode the identity of an engine."""
    return b"I" + json.dumps(identity).encode()


def decode(message: bytes) -> RequestAccount | Identity | dict[str, Any]:
    """Decode a message of any kind.

    Raises:
        ValueError: the message is malformed.
    """
    try:
        kind = message[:1]
        if kind == b"A":
            return decode_account(message)
        if kind == b"S":
            return _sample(json.loads(message[1:]))
        if kind == b"I":
            return _identity(json.loads(message[1:]))
    except (struct.error, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"malformed message {message[:1]!r}: {error}") from error
    raise ValueError(f"unknown message {message[:1]!r}; known: b'A', b'I', b'S'")


def is_account(message: bytes) -> bool:
    """Return whether a message has the first byte of an account."""
    return message[:1] == b"A"


def request_of(account: bytes) -> bytes:
    """The request id of an encoded account, without decoding the rest.

    Raises:
        ValueError: the message is too short.
    """
    ends = 1 + _ACCOUNT.size
    if len(account) < ends:
        raise ValueError(f"malformed account of {len(account)} bytes")
    return account[ends + account[ends - 1] * HASH_BYTES :]


def decode_account(message: bytes) -> RequestAccount:
    """Decode an account.

    Raises:
        ValueError: the message is malformed.
    """
    try:
        return _account(message)
    except struct.error as error:
        raise ValueError(f"malformed account: {error}") from error


def _account(message: bytes) -> RequestAccount:
    engine, *values, tier, block_tokens, number = _ACCOUNT.unpack_from(message, 1)
    if any(map(isinf, values)):
        raise ValueError("malformed account: a value is infinite")
    begins = 1 + _ACCOUNT.size
    ends = begins + number * HASH_BYTES
    if number > 1 + len(POSITIONS) or ends > len(message):
        raise ValueError(f"malformed account: {number} hashes in {len(message)} bytes")
    if tier > len(TIERS):
        raise ValueError(f"malformed account: tier {tier} of {len(TIERS)}")
    request_id = message[ends:].decode()
    if len(request_id) > TEXT_LIMIT:
        raise ValueError(f"malformed account: its request id has {len(request_id)} characters")
    known = [None if value != value else value for value in values]
    queued, billed_s, wasted_s, *held, size_bytes = known[15:22]
    size = None if size_bytes is None else int(size_bytes)
    account = RequestEngineTime(
        prefill=None if known[0] is None else RequestPhaseParts(*values[:5]),
        decode=None if known[5] is None else RequestPhaseParts(*values[5:10]),
        waited=None
        if queued is None
        else QueueWait(
            queued,
            RequestQueueParts(*values[10:15]),
            None if None in held else HeldParts(*values[18:21]),
        ),
        bill=None if billed_s is None or wasted_s is None else BilledTime(billed_s, wasted_s),
        block_hashes=BlockHashes(block_tokens, message[begins:ends]) if number else None,
        kv_load=KvLoad(size, TIERS[tier - 1] if tier else None)
        if tier or size is not None
        else None,
        **{
            name: None if value is None else kind(value)
            for (name, kind), value in zip(_NUMBERS.items(), known[22:], strict=True)
        },
    )
    return RequestAccount(request_id, engine, account)


def _sample(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a valid sample, or raise ValueError.

    A metric without a unit is invalid, because it would make all later exports fail.
    """
    if not _is_number(sample["engine"]):
        raise ValueError(f"malformed sample: engine {sample['engine']!r}")
    for field in ("totals", "gauges", "state"):
        for name, value in sample.get(field, {}).items():
            if name not in names.UNITS or not _is_number(value):
                raise ValueError(f"malformed sample: {field} {name[:TEXT_LIMIT]!r}")
    for hook, count in sample.get("failures", {}).items():
        if len(hook) > TEXT_LIMIT or not _is_number(count):
            raise ValueError(f"malformed sample: failures {hook[:TEXT_LIMIT]!r}")
    return {"totals": {}, "gauges": {}, **sample}


def _identity(fields: list[Any]) -> Identity:
    identity = Identity(*fields)
    identity = identity._replace(machine=Machine(*identity.machine), start=_start(identity.start))
    wanted = (int, int, str, str, str, dict, int, Machine, EngineInstants | None)
    for name, field, kind in zip(Identity._fields, identity, wanted, strict=True):
        if not isinstance(field, kind):
            raise ValueError(f"malformed identity: {name} is a {type(field).__name__}")
    for name, value in identity.arguments.items():
        if not isinstance(value, str | int | float | None):
            raise ValueError(f"malformed identity: argument {name[:TEXT_LIMIT]!r}")
    return identity


def _start(fields: Any) -> EngineInstants | None:
    if fields is None:
        return None
    if len(fields) != len(EngineInstants._fields):
        raise ValueError(f"malformed identity: start has {len(fields)} values")
    process, executor, loaded, ready, worker = fields
    instants = (process, executor, loaded, ready)
    if worker is not None and len(worker) != len(WorkerStart._fields):
        raise ValueError(f"malformed identity: start has {len(worker)} times of a worker")
    slowest = None if worker is None else WorkerStart(*worker)
    if not all(map(_is_number, (*instants, *(slowest or ())))):
        raise ValueError("malformed identity: start has a value that is not a number")
    return EngineInstants(*instants, slowest)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _or_nan(value: float | None) -> float:
    return _NAN if value is None else value
