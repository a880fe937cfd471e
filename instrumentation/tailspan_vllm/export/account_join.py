"""Completes request records and engine states with the data that the engine cores send.

An account is the step ledger's result for one request. One thread may read the link while a second
thread completes records.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Container
from typing import Any

from tailspan_vllm import guard, names
from tailspan_vllm.engine_core.link import FrontEndLink
from tailspan_vllm.engine_core.link_messages import (
    Identity,
    decode,
    decode_account,
    is_account,
    request_of,
)
from tailspan_vllm.engine_core.step_ledger import RequestEngineTime
from tailspan_vllm.engine_core.waiting_requests import load_failed
from tailspan_vllm.engine_state.state import EngineState
from tailspan_vllm.request.prefix_ladder import LadderKey
from tailspan_vllm.request.record import RequestRecord
from tailspan_vllm.start_up.instants import EngineInstants

ACCOUNTS_LIMIT = 32768
"""Maximum number of accounts that wait for their record, including accounts for other API
servers."""

ENGINES_LIMIT = 1024
"""No server has more engines than this."""

DISCOVER_S = 5.0

_AS_SETTLED = tuple(
    {*RequestEngineTime._fields}
    & {*RequestRecord.__slots__} - {"scheduled", "first_token", "last_token", "cached_tokens"}
)


class AccountJoin:
    """Stores the engines' messages until they are used.

    Args:
        token: the link's token, or None if there is no link.
        prefix_key: the secret for prefix ladders, or None for no ladders.
    """

    def __init__(self, token: str | None, prefix_key: str | None = None) -> None:
        self._link = FrontEndLink(token) if token else None
        self._ladder_key = LadderKey(prefix_key) if prefix_key is not None else None
        self._accounts: OrderedDict[bytes, bytes] = OrderedDict()
        """By request id. Every API server receives all accounts, but decodes only its own."""
        self._samples: dict[int, dict[str, Any]] = {}
        self._loads: dict[int, dict[str, Any]] = {}
        """The latest load of each engine, from its samples."""
        self._identities: dict[int, Identity] = {}
        self._unclaimed: set[int] = set()
        self._discovered_at = 0.0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the link."""
        if self._link is not None:
            self._link.close()

    @property
    def connections(self) -> int:
        """Number of engines with an open connection."""
        return 0 if self._link is None else self._link.connections

    def read(self, look: bool = False) -> int:
        """Read and store messages, and return their number.

        Args:
            look: True to connect to new engines now. If False, connect only every `DISCOVER_S`
                seconds.
        """
        if self._link is None:
            return 0
        late = time.monotonic() - self._discovered_at > DISCOVER_S
        if look or late or not self._link.connections:
            self._link.discover()
            self._discovered_at = time.monotonic()
        messages = self._link.read()
        with self._lock:
            self._take(messages)
        return len(messages)

    def _take(self, messages: list[bytes]) -> None:
        for message in messages:
            try:
                if is_account(message):
                    self._accounts[request_of(message)] = message
                    continue
                decoded = decode(message)
            except ValueError as error:
                _drop(error)
                continue
            if isinstance(decoded, Identity):
                self._identities[decoded.engine] = decoded
            elif isinstance(decoded, dict):
                self._take_sample(decoded)
        while len(self._accounts) > ACCOUNTS_LIMIT:
            self._accounts.popitem(last=False)
        for by_engine in (self._samples, self._identities):
            while len(by_engine) > ENGINES_LIMIT:
                by_engine.popitem()

    def _take_sample(self, sample: dict[str, Any]) -> None:
        """Replace an engine's sample, but keep the longest step until the next export."""
        gauges = sample["gauges"]
        before = self._samples.get(sample["engine"], {}).get("gauges", {})
        if names.LONGEST_STEP in before:
            longest = gauges.get(names.LONGEST_STEP, 0.0)
            gauges[names.LONGEST_STEP] = max(longest, before[names.LONGEST_STEP])
        self._samples[sample["engine"]] = sample

    def apply(self, record: RequestRecord) -> bool:
        """Complete a record. Return False if the record's account may still arrive."""
        with self._lock:
            return self._apply(record)

    def _apply(self, record: RequestRecord) -> bool:
        complete = self._settle(record)
        if record.model is None and record.engine_request_id is not None and self._identities:
            # An offline LLM has no stat logger that reports the model's name.
            identity = self._identities.get(record.engine if record.engine is not None else -1)
            if identity is None and len(self._identities) == 1:
                (identity,) = self._identities.values()
            if identity is not None:
                record.model, record.config = identity.model, identity.config
        return complete

    def _settle(self, record: RequestRecord) -> bool:
        if not self.connections:
            return True
        if record.engine_request_id is None or not record.awaits_account:
            return True
        message = self._accounts.pop(record.engine_request_id.encode(), None)
        if message is None:
            return False
        try:
            settled = decode_account(message)
        except ValueError as error:
            _drop(error)
            return True
        account, record.engine = settled.account, settled.engine
        if account.bill is not None:
            record.billed_s, record.wasted_s = account.bill
        if account.waited is not None:
            record.queue_parts, record.held_parts = account.waited.parts, account.waited.held
        record.prefill_parts, record.decode_parts = account.prefill, account.decode
        for name in _AS_SETTLED:
            setattr(record, name, getattr(account, name))
        if account.cached_tokens is not None and (
            record.cached_tokens is None or load_failed(record.cached_tokens, account.cached_tokens)
        ):
            record.cached_tokens = account.cached_tokens
        if account.block_hashes is not None and self._ladder_key is not None:
            record.prefix_ladder = self._ladder_key.ladder(*account.block_hashes)
        if record.arrived is None and record.basis == "engine":
            _set_instants_of_engine(record, account)
        elif record.left_early:
            _set_instants_until_left(record, account)
        elif record.scheduled is None and account.scheduled is not None:
            # Only the account has these values if vLLM keeps no statistics (--disable-log-stats, or
            # an offline LLM).
            record.queued = record.arrived
            record.scheduled = max(account.scheduled, record.arrived or account.scheduled)
            record.first_token, record.last_token = account.first_token, account.last_token
            record.delivered = max(record.delivered, record.last_token or record.scheduled)
        _forget_later_gaps(record, account)
        return True

    def unclaimed(self, known: Container[int]) -> list[EngineState]:
        """States of the engines without a stat logger here, such as the engines of an offline
        `LLM`."""
        with self._lock:
            identities = dict(self._identities)
        self._unclaimed.update(engine for engine in identities if engine not in known)
        return [
            EngineState(
                engine=engine,
                started_unix_ns=identity.started_unix_ns,
                model=identity.model,
                config=identity.config,
                version=identity.version,
                arguments=identity.arguments,
                machine=identity.machine,
            )
            for engine, identity in identities.items()
            if engine not in known
        ]

    def process_of(self, engine: int) -> int | None:
        """The process id of an engine, or None until its identity has arrived."""
        identity = self._identities.get(engine)
        return None if identity is None else identity.process

    def start_of(self, engine: int) -> EngineInstants | None:
        """The instants of an engine's start, or None if they are unknown."""
        identity = self._identities.get(engine)
        return None if identity is None else identity.start

    def add_sample(self, state: EngineState) -> None:
        """Add the totals, the step model and the load of an engine core to an engine's state."""
        state.gauges.pop(names.LONGEST_STEP, None)  # remove the value of the previous sample
        with self._lock:
            sample = self._samples.pop(state.engine, None)
        if sample is not None:
            state.totals |= sample["totals"]
            state.gauges |= sample["gauges"]
            state.failures = sample.get("failures", {})
            self._loads[state.engine] = sample.get("state", {})
        load = self._loads.get(state.engine)
        if load and (state.shared or state.engine in self._unclaimed):
            # A different API server may have received the statistics of the latest step.
            state.gauges |= load


def _drop(error: ValueError) -> None:
    guard.count("link.malformed", f"tailspan: dropped an engine's message: {error}")


def _forget_later_gaps(record: RequestRecord, account: RequestEngineTime) -> None:
    """Remove the longest gap, and its step's prefill, if the gap may follow the last token that the
    client received.

    If the client disconnects, or if the front end finds a stop string, then the engine runs further
    steps until it has read the abort. The account includes the gaps of these steps. None of them is
    longer than the time from the record's last token to the account's.
    """
    if account.itl_max_s is None or account.last_token is None:
        return
    if record.last_token is None or account.itl_max_s <= account.last_token - record.last_token:
        record.itl_max_s = record.others_prefill_tokens_max = None


def _set_instants_of_engine(record: RequestRecord, account: RequestEngineTime) -> None:
    record.queued = reached = record.received
    for name in ("scheduled", "first_token", "last_token"):
        instant = getattr(account, name)
        if instant is None:
            break
        reached = max(reached, instant)
        setattr(record, name, reached)
    record.delivered = record.last_token or max(record.delivered, reached)


def _set_instants_until_left(record: RequestRecord, account: RequestEngineTime) -> None:
    """Set the timestamps up to the client's disconnection. The engine may continue until the abort
    arrives."""
    if account.waited is None:
        return
    reached = max(record.received, record.handed or record.received)
    for name, instant in (
        ("queued", account.waited.queued),
        ("scheduled", account.scheduled),
        ("first_token", account.first_token),
        ("last_token", account.last_token),
    ):
        if instant is None or instant > record.delivered:
            break
        reached = max(reached, instant)
        setattr(record, name, reached)
