"""Store the predictions of `tailspan what-if`, and compare them with the latencies after a deploy
of the change.

A prediction is stored only if the predicted change can be deployed: a change of engine arguments
or of the number of replicas. The measured change is (percentile after the deploy) / (percentile
before the deploy) − 1, at the mix of requests after the deploy. Like the prediction, it
includes the effect of the load.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from sqlalchemy import Engine

from analysis.compare.parts import PercentileParts
from analysis.compare.work_terms import METRICS
from analysis.what_if import WhatIfAnswer
from replay.edits import ARGUMENTS
from store.access.restricted import access_of
from store.predictions import Prediction, newest_asked_unix_ns, store_prediction
from store.replicas.engine_starts import in_force
from telemetry.starts import MEASURED, Argument, EngineStart, loading_from, read
from telemetry.window import Window

POINTS: Final = ("p50", "p95", "p99")
REPLICAS: Final = "replicas"
ROUTER: Final = "router"
AGAIN_NS: Final = 3_600 * 10**9
"""The same prediction is stored at most once in this time."""
REPORTED: Final[Mapping[str, str]] = {
    "max_num_seqs": "scheduler.max_num_seqs",
    "max_num_batched_tokens": "scheduler.max_num_batched_tokens",
    "num_gpu_blocks": "cache.num_gpu_blocks_override",
    "enable_prefix_caching": "cache.enable_prefix_caching",
    "scheduling_policy": "scheduler.policy",
    "long_prefill_token_threshold": "scheduler.long_prefill_token_threshold",
    "num_speculative_tokens": "speculative.num_speculative_tokens",
    "max_model_len": "model.max_model_len",
}
"""Maps each what-if argument to its name in the arguments that an engine reports at its start."""
ABSENT: Final[Mapping[str, Argument]] = {
    "scheduling_policy": "fcfs",
    "long_prefill_token_threshold": 0,
    "num_speculative_tokens": 0,
}
"""Default values of the arguments that an engine does not report unless they are set."""


class Ratio(NamedTuple):
    """A predicted relative change of a percentile, with its confidence interval. The value −0.1
    means 10 % faster."""

    value: float
    low: float
    high: float


class Deployed(NamedTuple):
    """A change of the servers that was deployed."""

    change: str
    at_unix_ns: int
    """The time at which the first changed server began to load."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A prediction of one percentile, and the change that was measured after the deploy."""

    asked_unix_ns: int
    change: str
    ratio: Ratio
    measured: float

    @property
    def contained(self) -> bool:
        """Whether the predicted interval contains the measured change."""
        return self.ratio.low <= self.measured <= self.ratio.high


def canonical(edits: Sequence[str]) -> str | None:
    """Return edits such as `max_num_seqs=64` in the form that can be compared with a deploy.

    Return None if Tailspan cannot recognise a deploy of these edits. The form does not contain the
    router, because servers do not report it."""
    found = {}
    for each in edits:
        name, _, value = each.partition("=")
        if name == REPLICAS:
            found[name] = str(int(value))
        elif name in ARGUMENTS:
            found[name] = _text(ARGUMENTS[name].parse(value))
        elif name != ROUTER:
            return None
    routed = any(each.startswith(f"{ROUTER}=") for each in edits)
    return _joined(found) if found and (REPLICAS in found or not routed) else None


def store_answer(
    engine: Engine, answer: WhatIfAnswer, equals: Collection[str], asked_unix_ns: int
) -> Prediction | None:
    """Store a prediction, unless the same change was stored within the last hour. Return the stored
    row, or None if the prediction is not stored.

    A prediction is not stored if labels select the requests, or if the reader may not see all
    requests. It is also not stored for overloaded engines.

    Raises:
        StoreUnavailable: the database cannot be written.
    """
    change = canonical(answer.edits)
    if (
        change is None
        or access_of(engine) is not None
        or equals
        or answer.refused is not None
        or answer.saturated
    ):
        return None
    newest = newest_asked_unix_ns(engine, change, asked_unix_ns)
    if newest is not None and asked_unix_ns - newest < AGAIN_NS:
        return None
    predicted = {
        metric: {
            point: found
            for point in POINTS
            if (found := _ratio(answer.now[column][point], answer.predicted[column][point]))
        }
        for metric, column in METRICS.items()
    }
    row = Prediction(
        asked_unix_ns,
        change,
        answer.window.from_unix_ns,
        answer.window.to_unix_ns,
        json.dumps(predicted, allow_nan=False),
        answer.simulated,
    )
    store_prediction(engine, row)
    return row


def deployed(
    engine: Engine, before: Window, after: Window, served: Sequence[Collection[str]]
) -> Deployed | None:
    """The change of the servers between two ranges.

    Return None if nothing changed, or if something changed that what-if cannot predict."""
    starts = [
        in_force(engine, window.to_unix_ns - 1, replicas)
        for window, replicas in zip((before, after), served, strict=True)
    ]
    was, now = map(_arguments, starts)
    if was is None or now is None or was.others != now.others:
        return None
    changed = [name for name in REPORTED if was.known.get(name) != now.known.get(name)]
    if not now.known.keys() >= set(changed):
        return None  # what-if cannot remove an argument
    found = {name: _text(now.known[name]) for name in changed}
    if len(served[0]) != len(served[1]):
        found[REPLICAS] = str(len(served[1]))
    if not found:
        return None
    known = set(starts[0])
    made = (loading_from(each) for each in starts[1] if each not in known)
    return Deployed(_joined(found), min(made, default=after.from_unix_ns))


def replicas_of(column: pa.ChunkedArray) -> set[str]:
    """The known names of the replicas in a column of requests."""
    return {each for each in column.unique().to_pylist() if each is not None}


def expected(
    known: Iterable[Prediction],
    deploy: Deployed | None,
    metric: str,
    quantile: str,
    parts: PercentileParts | None,
) -> Expected | None:
    """Return the latest prediction of a deployed change that was requested before the deploy, or
    None. Pure."""
    made = of_change(known, deploy)
    if not made or parts is None or not parts.mixed_s > 0:
        return None
    latest = max(made, key=lambda each: each.asked_unix_ns)
    ratio = json.loads(latest.predicted).get(metric, {}).get(quantile)
    if ratio is None:
        return None
    measured = parts.compared_s / parts.mixed_s - 1
    return Expected(latest.asked_unix_ns, latest.change, Ratio(*ratio), measured)


def of_change(known: Iterable[Prediction], deploy: Deployed | None) -> list[Prediction]:
    """The predictions of a deployed change that were requested before the deploy. Pure."""
    if deploy is None:
        return []
    change, at_ns = deploy
    return [each for each in known if each.change == change and each.asked_unix_ns < at_ns]


def _ratio(now: float | None, predicted: Any) -> Ratio | None:
    ends = (predicted.value, predicted.low, predicted.high)
    if not now or None in ends:
        return None
    return Ratio(*(each / now - 1 for each in ends))


class _Arguments(NamedTuple):
    """The arguments of some engines: those that what-if can change, and all others."""

    known: Mapping[str, Argument]
    others: Mapping[str, Argument]


def _arguments(starts: Iterable[EngineStart]) -> _Arguments | None:
    reported = [read(each.arguments) for each in starts]
    for each in reported:
        each.pop(MEASURED, None)
    if not reported or any(each != reported[0] for each in reported):
        return None
    known = {
        name: value
        for name, key in REPORTED.items()
        if (value := reported[0].pop(key, ABSENT.get(name))) is not None
    }
    return _Arguments(known, reported[0])


def _text(value: Argument) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(found: Mapping[str, str]) -> str:
    return ",".join(f"{name}={found[name]}" for name in sorted(found))
