"""Rank possible changes of the servers (levers) by replaying the recorded traffic with each change.

A replay does not predict the quality of another model's output, or network delays. The precondition
of a lever states what you must check or provide before the change.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from analysis.corrected_prediction import Predicted
from analysis.hardware_change import QUANTISATIONS, on_hardware
from analysis.recorded_traffic import Recorded
from analysis.what_if import RESAMPLED, WhatIfAnswer, WhatIfQuestion, predict_each
from replay.edits import EditError, Edits, edited_engine, edits_of
from roofline.errors import UnknownShapeError
from roofline.shape_from_config import read_shape
from telemetry.printable import printable
from telemetry.starts import read

MIN_GAIN: Final = 0.02
"""Minimum relative reduction of a latency that counts as a gain. The replay of an unchanged
simulated window is up to 3 % off (docs/benchmarks.md#what-if)."""

FEWER_DRAWS: Final = 8
"""Number of resampled replays (draws) for a change that does not shorten the latency. The width of
its confidence interval does not affect the ranking, so an error of 25 % in the width is
acceptable."""

_SETTING, _MACHINES, _MODEL = 1, 2, 4
"""The effort of each kind of change. The numbers only define an order."""


@dataclass(frozen=True, slots=True)
class AdviceLever:
    """One change to try, with its effort and its precondition."""

    name: str
    edits: Edits
    effort: int
    precondition: str


@dataclass(frozen=True, slots=True)
class Advice:
    """A possible change (lever) with its predicted effect on one latency."""

    lever: AdviceLever
    answer: WhatIfAnswer
    metric: str

    @property
    def gain(self) -> Predicted:
        """The relative change of the P99. The value −0.1 means that the P99 falls by 10 %."""
        return self.answer.gains[self.metric]["p99"]

    @property
    def median_gain(self) -> Predicted:
        """The relative change of the P50."""
        return self.answer.gains[self.metric]["p50"]

    @property
    def helps(self) -> bool:
        """Whether the whole interval of the P99's change is below 0."""
        return shortens(self.answer, self.metric) and (self.gain.high is None or self.gain.high < 0)


def shortens(answer: WhatIfAnswer, metric: str) -> bool:
    """Return whether the predicted P99 falls by at least `MIN_GAIN`, and the engines can keep up.

    The confidence interval of the change is ignored."""
    gain = answer.gains[metric]["p99"].value
    return not answer.saturated and gain is not None and gain <= -MIN_GAIN


@dataclass(frozen=True, slots=True)
class AdviceAnswer:
    """The possible changes (levers) that were replayed. Helpful changes come first, sorted by gain
    relative to effort."""

    metric: str
    advice: Sequence[Advice]
    refused: str | None
    """Why there is no prediction, or None if there is a prediction."""
    unknown: Sequence[str]
    """Possible changes (levers) that a replay cannot judge, each with the reason."""


def advise(
    recorded: Recorded,
    question: WhatIfQuestion,
    metric: str,
    draws: int = RESAMPLED,
    progress: Callable[[], None] = lambda: None,
) -> AdviceAnswer:
    """Replay each lever (possible change) that applies to the engines of the window.

    Args:
        question: selects the requests whose latencies are reported. The edits of the question are
            ignored.
        metric: the latency to shorten, one of `window_replay.METRICS`.
        draws: number of resampled replays for each lever that shortens the latency. Each other
            lever gets at most `FEWER_DRAWS` replays.
    """
    unknown: list[str] = []
    levers = []
    for lever in _levers(recorded, unknown):
        if (reason := _refusal(recorded, lever)) is None:
            levers.append(lever)
        else:
            unknown.append(f"{lever.name}: {reason}")

    def draws_for(answer: WhatIfAnswer) -> int:
        return draws if shortens(answer, metric) else FEWER_DRAWS

    alternatives = [lever.edits for lever in levers]
    answers = predict_each(recorded, question, alternatives, draws, progress, draws_for)
    for answer in answers:
        if answer.refused is not None:
            return AdviceAnswer(metric, [], answer.refused, unknown)
    found = [Advice(*each, metric) for each in zip(levers, answers, strict=True)]
    found.sort(key=lambda each: (not each.helps, (each.gain.value or 0.0) / each.lever.effort))
    return AdviceAnswer(metric, found, None, unknown)


def _levers(recorded: Recorded, unknown: list[str]) -> Iterator[AdviceLever]:
    """Yield the changes (levers) that apply, in the usual order of optimisation. Add the changes
    that a replay cannot judge to `unknown`."""
    first = recorded.engines[0]
    config, arguments = first.model.engine, read(first.start.arguments)

    def lever(name: str, edits: str, effort: int, precondition: str) -> AdviceLever:
        return AdviceLever(name, edits_of([edits]), effort, precondition)

    unknown.append(
        "smaller model: needs a recording with that model, and an evaluation of its answers"
    )
    unknown.append("placement: the network between users and servers is not in this traffic")
    for name in ("fp8", "int4"):
        found = lever(
            "quantisation", f"quantization={name}", _MODEL, "an evaluation of its answers"
        )
        if (reason := _not_quantisable(recorded, found, name)) is None:
            yield found
        else:
            unknown.append(f"quantisation {name}: {reason}")
    if not config.enable_prefix_caching:
        unknown.append(
            "prefix caching: it is off, so shared prefixes are not recorded; to measure them,"
            " switch prefix caching on (it costs little)"
        )
    elif any(each.arrivals.prefixes is not None for each in recorded.engines):
        more = f"num_gpu_blocks={round(config.num_gpu_blocks * 1.5)}"
        yield lever(
            "larger KV cache", more, _SETTING, "memory for it, for example with a KV cache in fp8"
        )
    for name, factor in (("larger batch", 2), ("smaller batch", 0.5)):
        seats = round(config.max_num_seqs * factor)
        if 1 <= seats <= config.max_num_batched_tokens:
            yield lever(name, f"max_num_seqs={seats}", _SETTING, "a restart")
    for name, factor in (("larger chunks", 2), ("smaller chunks", 0.5), ("small chunks", 0.25)):
        budget = round(config.max_num_batched_tokens * factor)
        if budget >= config.max_num_seqs:
            yield lever(name, f"max_num_batched_tokens={budget}", _SETTING, "a restart")
    if not config.long_prefill_token_threshold:
        # If vLLM limits partial prefills, the default threshold of a long prompt is 4 % of
        # max_model_len.
        limit = max(1, round(config.max_model_len * 0.04))
        yield lever(
            "limit long prefills", f"long_prefill_token_threshold={limit}", _SETTING, "a restart"
        )
    unknown.append("priority: the recorded requests have no priorities")
    if not arguments.get("speculative.num_speculative_tokens"):
        unknown.append(
            "speculative decoding: the acceptance rate is unknown until it is switched on"
        )
    if recorded.replicas > 1:
        router = "a router in front of the replicas"
        yield lever("routing by load", "router=least_outstanding", _MACHINES, router)
        yield lever("routing by prefix", "router=prefix_aware", _MACHINES, router)
    yield lever(
        "one more replica",
        f"replicas={recorded.replicas + 1}",
        _MACHINES,
        "capacity for it",
    )
    if recorded.replicas > 1:
        yield lever("one replica fewer", f"replicas={recorded.replicas - 1}", _MACHINES, "nothing")


def _refusal(recorded: Recorded, lever: AdviceLever) -> str | None:
    """Return why the lever cannot be replayed or an engine does not allow its arguments, or None.

    The lever's values are computed from the first engine's arguments. Other engines may have
    different arguments."""
    if recorded.prefill_apart and lever.edits.pools:
        return "prefill and decode are on different servers"
    for each in recorded.engines:
        try:
            edited_engine(each.model.engine, lever.edits.arguments or {})
        except EditError as error:
            return f"replica {printable(each.replica, 63)} cannot have this value: {error}"
    return None


def _not_quantisable(recorded: Recorded, lever: AdviceLever, name: str) -> str | None:
    """Return why the effect of a quantisation cannot be extrapolated, or None if it can be
    extrapolated."""
    for each in recorded.engines:
        try:
            now = read_shape(each.start.shape or "{}").precision.linear_bytes
            on_hardware(each.model.engine, each.start, lever.edits, {})
        except (EditError, UnknownShapeError) as error:
            return str(error)
        if now <= QUANTISATIONS[name].weight_bytes:
            return "the current weights are already as small"
    return None
