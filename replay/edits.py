"""Apply the changes of a what-if question: engine arguments, replicas, router, rates, lengths.

Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from replay.arrivals import Arrivals, FloatArray, IntArray
from replay.engine_config import POLICIES, EngineConfig
from replay.front_end import FrontEndModel
from replay.server_model import ROUTERS, Router
from telemetry.printable import printable

JITTER_S: Final = 30.0
"""Maximum number of seconds by which a copied request is moved.

To increase the rate, recorded requests are copied, as if there were more users. The copies are
moved, so that they do not arrive together with the originals. The limit is short, so that changes
of the recorded rate over time are preserved. A copy keeps only the original's system prompt. The
rest of its prompt belongs to another user (`Prefixes.common`).
"""


MAX_COUNT: Final = 2**31 - 1
"""Maximum integer in an edit. Larger numbers do not fit into the replay's arrays."""


def _number(text: str, least: int = 0) -> int:
    number = int(text)
    if not least <= number <= MAX_COUNT:
        raise ValueError(text)
    return number


def _count(text: str) -> int:
    return _number(text, least=1)


def _switch(text: str) -> bool:
    known = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    return known[text.lower()]


def _policy(text: str) -> str:
    if text not in POLICIES:
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True)
class Argument:
    """An editable engine argument: its field in `EngineConfig`, and the parser of its values."""

    field: str
    parse: Callable[[str], Any]
    allowed: str


_COUNT: Final = f"a whole number of at least 1 and at most {MAX_COUNT}"
_SWITCH: Final = "true or false"

ARGUMENTS: Final[Mapping[str, Argument]] = {
    "max_num_seqs": Argument("max_num_seqs", _count, _COUNT),
    "max_num_batched_tokens": Argument("max_num_batched_tokens", _count, _COUNT),
    "num_gpu_blocks": Argument("num_gpu_blocks", _count, _COUNT),
    "enable_prefix_caching": Argument("enable_prefix_caching", _switch, _SWITCH),
    "scheduling_policy": Argument("policy", _policy, " or ".join(POLICIES)),
    "long_prefill_token_threshold": Argument(
        "long_prefill_token_threshold", _number, "a whole number; 0 for no limit"
    ),
    "num_speculative_tokens": Argument(
        "num_speculative_tokens", _number, "a whole number; 0 disables speculation"
    ),
    "max_model_len": Argument("max_model_len", _count, _COUNT),
}
"""Maps vLLM's command-line names (with underscores) to the editable engine arguments."""


class EditError(ValueError):
    """Raised if an edit is not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateEdit:
    """A change of the request rate by `factor`, for all requests or for one tenant."""

    factor: float
    tenant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """All changes of a what-if question."""

    arguments: Mapping[str, str] | None = None
    replicas: int | None = None
    data_parallel_size: int | None = None
    router: Router | None = None
    device: str | None = None
    """Name of another GPU. The caller of `replay` must pass a step model for it."""
    quantization: str | None = None
    """Another number format of the weights. The caller of `replay` must pass a step model for
    it."""
    rates: Sequence[RateEdit] = ()
    prompt: float = 1.0
    """Factor for the lengths of prompts and of their cached parts."""
    output: float = 1.0
    """Factor for the output lengths."""

    def __post_init__(self) -> None:
        for name in ("replicas", "data_parallel_size"):
            count = getattr(self, name)
            if count is not None and not 1 <= count <= MAX_ENGINES:
                raise EditError(f"{name}: {count}; allowed: 1 to {MAX_ENGINES}")
        for name, factor in (
            *(("rate", each.factor) for each in self.rates),
            ("prompt", self.prompt),
            ("output", self.output),
        ):
            if not 0 < factor < float("inf"):
                raise EditError(f"{name}: {factor:g}x; allowed: more than 0x")

    @property
    def pools(self) -> bool:
        """Whether the router may send a request to a different engine than in the recording."""
        chosen = (self.replicas, self.data_parallel_size, self.router)
        return any(each is not None for each in chosen)

    @property
    def hardware(self) -> bool:
        """Whether the GPU, or the number format of the weights, differs from the recording."""
        return self.device is not None or self.quantization is not None

    @property
    def pool_router(self) -> Router:
        """Router between all engines. Default: `least_outstanding` if `data_parallel_size` is set,
        because vLLM itself balances the load between a replica's engines in this way."""
        return self.router or ("least_outstanding" if self.data_parallel_size else "round_robin")

    def engines(self, replicas_now: int, engines_now: int) -> int:
        """Return the total number of engines after the edit."""
        of_each = self.data_parallel_size or max(1, engines_now // replicas_now)
        if self.replicas is None and self.data_parallel_size is None:
            return engines_now
        return (self.replicas or replicas_now) * of_each

    def listed(self) -> list[str]:
        """Return each edit as text, in the form of the command line."""
        found = [f"{name}={value}" for name, value in (self.arguments or {}).items()]
        found += [
            f"{name}={value}" for name in _PLAIN if (value := getattr(self, name)) is not None
        ]
        for rate in self.rates:
            of = "" if rate.tenant is None else f"tenant={rate.tenant}:"
            found.append(f"rate={of}{rate.factor:g}x")
        found += [
            f"{name}={factor:g}x"
            for name, factor in (("prompt", self.prompt), ("output", self.output))
            if factor != 1
        ]
        return found


MAX_ENGINES: Final = 10_000
_COUNTS: Final = ("replicas", "data_parallel_size")
_PLAIN: Final = (*_COUNTS, "router", "device", "quantization")

MIN_FACTOR: Final = 0.001
MAX_FACTOR: Final = 1_000.0
"""Limits of a factor. Beyond these limits, the traffic would no longer resemble the recorded
traffic."""
_ALLOWED_FACTOR: Final = f"from {MIN_FACTOR:g}x to {MAX_FACTOR:g}x, as in 1.5x"
MAX_REQUESTS: Final = 2_000_000
"""Maximum number of requests in the edited traffic, to limit memory."""

_FACTOR: Final = re.compile(r"(?:tenant=(?P<tenant>.*):)?(?P<factor>[0-9]*\.?[0-9]+)x?")


def factor_of(name: str, text: str) -> float:
    """Parse a factor, such as 1.5x or 1.5.

    Raises:
        EditError: the text is not a factor.
    """
    found = _FACTOR.fullmatch(text)
    if found is None or found["tenant"] is not None:
        raise EditError(f"{name} {text!r}: must be a factor {_ALLOWED_FACTOR}")
    return _in_range(name, found["factor"])


def _in_range(name: str, text: str) -> float:
    factor = float(text)
    if not MIN_FACTOR <= factor <= MAX_FACTOR:
        raise EditError(f"{name} {text}x; allowed: a factor {_ALLOWED_FACTOR}")
    return factor


def rate_of(name: str, text: str) -> RateEdit:
    """Parse a rate, such as 1.5x or tenant=acme:0.5x.

    Raises:
        EditError: the text is not a rate.
    """
    found = _FACTOR.fullmatch(text)
    if found is None:
        raise EditError(
            f"{name} {text!r}: must be a factor {_ALLOWED_FACTOR}, or a tenant's factor, as in"
            " tenant=acme:0.5x"
        )
    return RateEdit(factor=_in_range(name, found["factor"]), tenant=found["tenant"])


def edits_of(texts: Iterable[str]) -> Edits:
    """Parse edits in the form that `Edits.listed` returns.

    Raises:
        EditError: a text is not an edit.
    """
    arguments: dict[str, str] = {}
    rates: list[RateEdit] = []
    others: dict[str, Any] = {}
    for text in texts:
        name, is_, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not is_ or not value:
            raise EditError(f"{text!r}: must be NAME=VALUE, as in max_num_seqs=64")
        if name == "rate":
            rates.append(rate_of(name, value))
        elif name in ("prompt", "output"):
            others[name] = factor_of(name, value)
        elif name in _COUNTS:
            try:
                others[name] = int(value)
            except ValueError:  # not a whole number, or more than 4,300 digits
                raise EditError(f"{name}: {value!r}; allowed: 1 to {MAX_ENGINES}") from None
        elif name == "router":
            if value not in ROUTERS:
                raise EditError(f"router: {value!r}; allowed: {', '.join(ROUTERS)}")
            others[name] = value
        elif name in ("device", "quantization"):
            others[name] = value
        elif name in ARGUMENTS:
            _parsed(name, value)
            arguments[name] = value
        else:
            allowed = ", ".join((*ARGUMENTS, *_PLAIN, "rate", "prompt", "output"))
            raise EditError(f"{name}: not modelled; allowed: {allowed}")
    return Edits(arguments=arguments, rates=rates, **others)


def _parsed(name: str, value: str) -> Any:
    argument = ARGUMENTS[name.replace("-", "_")]
    try:
        return argument.parse(value)
    except (ValueError, KeyError):
        raise EditError(f"{name}: {value!r}; allowed: {argument.allowed}") from None


def edited_engine(config: EngineConfig, arguments: Mapping[str, str]) -> EngineConfig:
    """Return a copy of an engine's configuration with changed arguments.

    Raises:
        EditError: an argument or its value is not allowed.
    """
    changed: dict[str, Any] = {}
    for name, value in arguments.items():
        argument = ARGUMENTS.get(name.replace("-", "_"))
        if argument is None:
            raise EditError(f"{name}: not modelled; allowed: {', '.join(ARGUMENTS)}")
        changed[argument.field] = _parsed(name, value)
    try:
        return replace(config, **changed)
    except ValueError as error:
        raise EditError(str(error)) from None


def edited_arrivals(
    arrivals: Arrivals,
    edits: Edits,
    engine: EngineConfig,
    front_end: FrontEndModel,
    tenants: Sequence[str],
    chance: np.random.Generator,
) -> tuple[Arrivals, IntArray]:
    """Return the edited traffic, and for each of its requests the index of the recorded request.

    Args:
        arrivals: the recorded traffic; `tenant` indexes `tenants`.
        engine: the edited engine.
        front_end: computes the front end's time for prompts with changed lengths.
        chance: random generator that chooses the requests to copy or drop, and the times of copies.

    Raises:
        EditError: a rate names a tenant without requests, the edited traffic has too many requests,
            or the acceptance of drafted tokens is unknown.
    """
    asked = {name.replace("-", "_") for name in edits.arguments or {}}
    drafts = engine.num_speculative_tokens if "num_speculative_tokens" in asked else 0
    if drafts and arrivals.acceptance is None:
        raise EditError(
            f"num_speculative_tokens: {drafts}; allowed: 0, because a recorded engine drafts no"
            " tokens, so the share of accepted tokens is unknown"
        )
    rows = np.arange(len(arrivals))
    users = _users(arrivals)
    received_s = arrivals.received_s
    for rate in edits.rates:
        its = np.ones(len(rows), dtype=bool)
        if rate.tenant is not None:
            if rate.tenant not in tenants:
                allowed = ", ".join(printable(each, 63) for each in tenants)
                raise EditError(f"rate: tenant={rate.tenant} has no requests; allowed: {allowed}")
            assert arrivals.tenant is not None
            its = arrivals.tenant[rows] == list(tenants).index(rate.tenant)
        number = len(rows) + int(its.sum() * (rate.factor - 1))
        if number > MAX_REQUESTS:
            raise EditError(
                f"rate {rate.factor:g}x: {number:,} requests; allowed: at most {MAX_REQUESTS:,}."
                " Choose a smaller factor or a shorter range."
            )
        rows, received_s = _scaled(rows, received_s, users[rows], its, rate.factor, chance)
    chosen = arrivals.select(rows, received_s)
    if edits.prompt != 1 or edits.output != 1:
        chosen = _with_lengths(chosen, edits.prompt, edits.output, front_end)
    if not engine.enable_prefix_caching:
        chosen = replace(chosen, cached_tokens=None)
    return chosen, rows


def _users(arrivals: Arrivals) -> IntArray:
    """Return a number that identifies each request's user: (n,).

    A client that waits for each response is one user.
    """
    count = len(arrivals)
    users = np.arange(count) if arrivals.prefixes is None else arrivals.prefixes.users()
    if arrivals.after is not None:
        for row in np.flatnonzero(arrivals.after >= 0).tolist():
            users[row] = users[arrivals.after[row]]
    return users


def _scaled(
    rows: IntArray,
    received_s: FloatArray,
    users: IntArray,
    its: IntArray,
    factor: float,
    chance: np.random.Generator,
) -> tuple[IntArray, FloatArray]:
    """Copy or drop the selected requests. Return, for each resulting request, the index of the
    recorded request and the time of receipt, in order of time.

    All requests of a user are copied or dropped together. The first copies of a user's requests are
    all moved by the same time. The second copies are moved by another time, and so on. So
    conversations and closed loops stay intact.
    """
    copies = np.ones(len(rows), dtype=np.int64)
    whole = int(factor)
    known, user = np.unique(users[its], return_inverse=True)
    # The number of users is exact, because a tenant may have only a few waiting clients.
    more = np.floor(len(known) * (factor - whole) + chance.random())
    chosen = chance.permutation(len(known)) < more
    copies[its] = whole + chosen[user.reshape(-1)]
    places = np.repeat(np.arange(len(rows)), copies)
    number = np.arange(len(places)) - np.repeat(np.cumsum(copies) - copies, copies)
    pairs = users[places] * (copies.max(initial=0) + 1) + number
    known, pair = np.unique(pairs, return_inverse=True)
    jitter_s = chance.uniform(-JITTER_S, JITTER_S, len(known))[pair.reshape(-1)]
    moved_s = received_s[places] + np.where(number == 0, 0.0, jitter_s)
    if received_s.size:
        # Reflect times beyond the recording at its start or end. If these times were clipped, many
        # copies would arrive at the same time.
        first_s, last_s = received_s[0], received_s[-1]
        moved_s = first_s + np.abs(moved_s - first_s)
        moved_s = np.clip(last_s - np.abs(last_s - moved_s), first_s, last_s)
    order = np.argsort(moved_s, kind="stable")
    return rows[places][order], moved_s[order]


def _with_lengths(
    arrivals: Arrivals, prompt: float, output: float, front_end: FrontEndModel
) -> Arrivals:
    def scaled(tokens: IntArray, factor: float) -> IntArray:
        found: IntArray = np.maximum(np.rint(tokens * factor), 1).astype(np.int64)
        return found

    prompt_tokens = scaled(arrivals.prompt_tokens, prompt)
    cached = arrivals.cached_tokens
    if cached is not None:
        cached = np.minimum(np.rint(cached * prompt), prompt_tokens - 1).astype(np.int64)
    prefixes = arrivals.prefixes
    if prefixes is not None:
        ends = np.rint(prefixes.end_tokens * prompt).astype(np.int64)
        prefixes = replace(prefixes, end_tokens=ends)
    frontend_s = arrivals.frontend_s
    if frontend_s is not None and prompt != 1:
        more = (prompt_tokens - arrivals.prompt_tokens) * front_end.prompt_token_s
        frontend_s = np.maximum(frontend_s + more, 0.0)
    return replace(
        arrivals,
        prompt_tokens=prompt_tokens,
        output_tokens=scaled(arrivals.output_tokens, output),
        cached_tokens=cached,
        prefixes=prefixes,
        frontend_s=frontend_s,
    )
