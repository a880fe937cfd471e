"""The step ledger: the work and duration of every engine step, and each request's share.

A share is the difference of two running sums over the steps. So the CPU time of a share grows with
the number of prefill chunks, not of tokens. The oldest steps are dropped. A phase that began in a
dropped step is not split.

This module is pure: callers pass timestamps of one monotonic clock.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tailspan_vllm.engine_core.block_hashes import BlockHashes
from tailspan_vllm.engine_core.queue_waits import QueueWait
from tailspan_vllm.engine_core.range_max import RangeMax
from tailspan_vllm.engine_core.step_billing import BY_TOKENS, BilledTime, Billing, Chunk, Decoding
from tailspan_vllm.engine_core.step_model import FittedStepModel, StepWork
from tailspan_vllm.request.parts import KvLoad, RequestPhaseParts

CAPACITY = 32768


@dataclass(slots=True)
class Track:
    """The ledger's record of one request in the engine."""

    request_id: str
    scheduled: float
    waited: QueueWait | None = None
    external_cached_tokens: int | None = None
    """The prompt tokens that were loaded from outside the engine."""
    kv_load: KvLoad | None = None
    has_encoder: bool = False
    block_hashes: BlockHashes | None = None
    chunks: list[Chunk] = field(default_factory=list)
    decodings: list[Decoding] = field(default_factory=list)
    evicted_after: list[int] = field(default_factory=list)
    """Number of the last step before each preemption."""
    resumed_in: list[int] = field(default_factory=list)
    """Number of the first step after each resumption."""

    def until(self, last: int) -> "Track":
        """A copy of the track without the steps after step `last`."""
        return replace(
            self,
            chunks=[chunk for chunk in self.chunks if chunk.step <= last],
            decodings=[run for run in self.decodings if run.first <= last],
        )


class RequestEngineTime(NamedTuple):
    """The engine time of one request. A field is None if the ledger cannot determine it."""

    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    prefill: RequestPhaseParts | None = None
    decode: RequestPhaseParts | None = None
    itl_max_s: float | None = None
    waited: QueueWait | None = None
    others_prefill_tokens_max: int | None = None
    external_cached_tokens: int | None = None
    bill: BilledTime | None = None
    block_hashes: BlockHashes | None = None
    kv_load: KvLoad | None = None
    cached_tokens: int | None = None
    """Prompt tokens before the request's first chunk, which the engine did not compute."""
    encoder_s: float | None = None
    """The part of `prefill.own` that the encoder took, in seconds, or None if the engine has no
    encoder."""


class Ledger:
    """The step ledger of one engine."""

    def __init__(self, model: FittedStepModel | None = None, capacity: int = CAPACITY) -> None:
        self.model = model or FittedStepModel()
        self._capacity = capacity
        self._forgotten = 0
        self._ends = array("d")
        self._gaps = RangeMax()
        self._prefill_tokens = RangeMax()
        # Entry k is the sum over the steps up to k. f = (the step's duration − stall − encoder's
        # time) / the predicted duration. `_prefill` and `_shared` include the encoder's seconds.
        self._billing = Billing()
        self._unknown = array("q")
        self._stall = array("d")
        self._prefill = array("d")  # f·(α·P + κ·Q + λ·L)
        self._shared = array("d")  # (duration − stall) × prefill's share of the step
        self._base = array("d")  # f·γ
        self._alpha = array("d")
        self._kappa = array("d")
        self._beta = array("d")
        self._beta_index = array("d")  # f·β·k: a decode's context grows by one token per step
        self._delta = array("d")
        self._launch = array("d")  # f·λ·L
        self._encoder = array("d")
        self._running = [0.0] * 11
        self._sums = (
            self._stall,
            self._prefill,
            self._shared,
            self._base,
            self._alpha,
            self._kappa,
            self._beta,
            self._beta_index,
            self._delta,
            self._launch,
            self._encoder,
        )
        self._moved_s = 0.0
        """The part of the newest step's duration that belongs to the next step."""

    @property
    def next_step(self) -> int:
        """Number of the step that will end next."""
        return self._forgotten + len(self._ends)

    def end_step(
        self,
        work: StepWork,
        begun: float,
        ended: float,
        sequences: int,
        *,
        encodes: bool = False,
        prefill_follows: bool = False,
    ) -> float:
        """Add a step. Steps end in the order in which they were scheduled.

        With asynchronous scheduling, vLLM launches the next step before it reads this step's
        outputs. Launching a prefill takes up to 30 ms of CPU time, so a short step before the
        prefill seems to end late. The part of its duration above the model's prediction is
        therefore added to the next step.

        Args:
            begun: the end of the previous step, or when the engine became busy.
            ended: when the step's outputs were read.
            encodes: whether the encoder of images or audio ran. The encoder gets the duration above
                the model's prediction, and the model does not learn from this step.
            prefill_follows: whether the next step has prefill and was scheduled before this step
                ended.

        Returns: the step's stall in seconds.
        """
        measured = max(ended - begun, 0.0)
        duration = measured + self._moved_s
        model = self.model
        predicted = model.predict(work) if model.ready else 0.0
        self._moved_s = 0.0
        if prefill_follows and predicted > 0 and not encodes:
            surplus = duration - predicted * max(model.pace, 1.0)
            self._moved_s = min(max(surplus, 0.0), measured)
            duration -= self._moved_s
        unknown = 0
        stall = prefill = shared = encoder = 0.0
        f = gamma = alpha = kappa = beta = delta = launch = 0.0
        if predicted > 0:
            if encodes:
                encoder = max(0.0, duration - predicted * max(model.pace, 1.0))
            else:
                stall = model.stall_of(duration, predicted, prefill=work.prefill_tokens > 0)
            gamma, alpha, kappa, beta, delta, launch = model.coefficients
            if not work.prefill_tokens:
                launch = 0.0
            modelled_s = duration - stall - encoder
            f = modelled_s / predicted
            variable = predicted - gamma
            if work.prefill_tokens and variable > 0:
                modelled = alpha * work.prefill_tokens + kappa * work.prefill_attention + launch
                prefill = f * modelled
                shared = modelled_s * modelled / variable
            prefill += encoder
            shared += encoder
        else:
            unknown = 1
        weights = model.coefficients if predicted > 0 else BY_TOKENS
        self._billing.enter(self.next_step, work, sequences, duration, weights)
        if not encodes:
            model.learn(work, duration)
        added = (
            stall,
            prefill,
            shared,
            f * gamma,
            f * alpha,
            f * kappa,
            f * beta,
            f * beta * self.next_step,
            f * delta,
            f * launch,
            encoder,
        )
        for index, value in enumerate(added):
            self._running[index] += value
            self._sums[index].append(self._running[index])
        self._unknown.append((self._unknown[-1] if self._unknown else 0) + unknown)
        self._gaps.append(ended - self._ends[-1] if self._ends else 0.0)
        self._prefill_tokens.append(work.prefill_tokens)
        self._ends.append(ended)
        if len(self._ends) >= 2 * self._capacity:
            self._forget(self._capacity)
        return stall

    def _forget(self, count: int) -> None:
        for column in (self._ends, self._unknown, *self._sums):
            del column[:count]
        self._billing.forget(count)
        self._gaps.forget(count)
        self._prefill_tokens.forget(count)
        self._forgotten += count

    # --- settling ----------------------------------------------------------------------------

    def settle(
        self, track: Track, last: int | None = None, paid: int | None = None
    ) -> RequestEngineTime | None:
        """Split a request's prefill and decode into parts.

        Args:
            last: the last step that ended before the request ended, or None for the newest step.
            paid: the newest step with work for the request, or None if it is the step `last`.

        Returns: seconds, or None if the request's first steps were dropped. If the request ended
        during its first step, the result has a bill but no parts.
        """
        if last is None:
            last = self.next_step - 1
        first_step = self._first_step(track)
        upto = last if paid is None else paid
        if first_step is None or first_step > upto:
            return None
        bill = self._billing.of(track.chunks, track.decodings, upto, track.evicted_after)
        if first_step > last:
            return RequestEngineTime(
                track.scheduled, waited=track.waited, bill=bill, block_hashes=track.block_hashes
            )
        if upto > last:
            track = track.until(last)
        prefill_end = track.decodings[0].first if track.decodings else last
        prefill_preempted, decode_preempted = self._preempted(track, prefill_end, last)
        latest = track.decodings[-1] if track.decodings else None
        known = not self._between(self._unknown, first_step - 1, last)
        prefill, encoder_s = (
            self._prefill_parts(track, first_step, prefill_end, prefill_preempted)
            if known
            else (None, None)
        )
        return RequestEngineTime(
            scheduled=track.scheduled,
            first_token=self._end_of(prefill_end) if latest else None,
            last_token=self._end_of(last if latest.last is None else latest.last)
            if latest
            else None,
            prefill=prefill,
            decode=self._decode_parts(track, last, decode_preempted)
            if known and track.decodings
            else None,
            itl_max_s=self._longest_gap(track, last),
            waited=track.waited,
            others_prefill_tokens_max=self._most_prefill_of_others(track, last),
            external_cached_tokens=track.external_cached_tokens,
            bill=bill,
            block_hashes=track.block_hashes,
            kv_load=track.kv_load,
            cached_tokens=round(track.chunks[0].start) if track.chunks else None,
            encoder_s=encoder_s if track.has_encoder else None,
        )

    def _first_step(self, track: Track) -> int | None:
        """Return the step that ran when the request was scheduled, or None if it was dropped."""
        position = bisect_right(self._ends, track.scheduled)
        if position == 0 and self._forgotten:
            return None
        return self._forgotten + position

    def _end_of(self, step: int) -> float:
        return self._ends[step - self._forgotten]

    def _between(self, sums: "array[float] | array[int]", after: int, upto: int) -> float:
        low, high = after - self._forgotten, upto - self._forgotten
        return sums[high] - (sums[low] if low >= 0 else 0)

    def _preempted(self, track: Track, prefill_end: int, last: int) -> tuple[float, float]:
        """Seconds lost to preemptions before the first token, and seconds lost after the first
        token.

        The lost time begins at a preemption. It ends when the discarded work has been computed
        again.
        """
        before = after = 0.0
        for number, evicted in enumerate(track.evicted_after):
            resumed = track.resumed_in[number] if number < len(track.resumed_in) else last + 1
            if track.decodings and evicted >= prefill_end:
                caught_up = next(
                    (run.first for run in track.decodings if run.first >= resumed), last
                )
                after += self._end_of(min(caught_up, last)) - self._end_of(evicted)
            else:
                since = max(track.scheduled, self._end_of(evicted))
                before += max(0.0, self._end_of(min(resumed - 1, last)) - since)
        return before, after

    def _prefill_parts(
        self, track: Track, first_step: int, prefill_end: int, preempted: float
    ) -> tuple[RequestPhaseParts, float]:
        total = max(0.0, self._end_of(prefill_end) - track.scheduled)
        own = others_prefill = mine_stall = encoder = 0.0
        for chunk in track.chunks:
            if chunk.step > prefill_end:
                break
            before, step = chunk.step - 1, chunk.step
            encoded = self._between(self._encoder, before, step) * chunk.encoder_ratio
            mine = (
                self._between(self._alpha, before, step) * chunk.tokens
                + self._between(self._kappa, before, step) * chunk.attention
                + self._between(self._launch, before, step)
                + encoded
            )
            encoder += encoded
            own += mine + self._between(self._base, before, step)
            others_prefill += max(0.0, self._between(self._prefill, before, step) - mine)
            mine_stall += self._between(self._stall, before, step)
        # In some steps, the request has no work. Except after a preemption, the time of these steps
        # is divided among the other requests' prefill and decode, in proportion to their work.
        steps_with = sum(
            self._end_of(chunk.step) - self._begun(chunk.step, track.scheduled)
            for chunk in track.chunks
            if chunk.step <= prefill_end
        )
        without = max(0.0, total - steps_with - preempted)
        if without > 0:
            span = total - steps_with
            shared = self._between(self._shared, first_step - 1, prefill_end) - sum(
                self._between(self._shared, chunk.step - 1, chunk.step)
                for chunk in track.chunks
                if chunk.step <= prefill_end
            )
            stalled = self._between(self._stall, first_step - 1, prefill_end) - mine_stall
            ratio = without / span if span > 0 else 0.0
            others_prefill += min(max(shared, 0.0) * ratio, without)
            mine_stall += min(max(stalled, 0.0) * ratio, without)
        parts = _summing_to(total, own, others_prefill, preempted, mine_stall)
        return parts, encoder * parts.own / own if own > 0 else 0.0

    def _begun(self, step: int, not_before: float) -> float:
        position = step - self._forgotten
        return max(not_before, self._ends[position - 1]) if position > 0 else not_before

    def _decode_parts(self, track: Track, last: int, preempted: float) -> RequestPhaseParts:
        total = self._end_of(last) - self._end_of(track.decodings[0].first)
        own = others_prefill = stall = 0.0
        for run in track.decodings:
            first, end = run.first, last if run.last is None else run.last
            if end <= first:
                continue
            beta = self._between(self._beta, first, end)
            grown = self._between(self._beta_index, first, end) - first * beta
            own += (
                self._between(self._base, first, end)
                + self._between(self._delta, first, end)
                + run.context * beta
                + grown
            )
            others_prefill += self._between(self._prefill, first, end)
            stall += self._between(self._stall, first, end)
        return _summing_to(total, own, others_prefill, preempted, stall)

    def _longest_gap(self, track: Track, last: int) -> float | None:
        """Longest gap in seconds, or None for fewer than two tokens."""
        longest = None
        previous_end: int | None = None
        for run in track.decodings:
            end = last if run.last is None else run.last
            if previous_end is not None:
                gap = self._end_of(run.first) - self._end_of(previous_end)
                longest = max(gap, longest or 0.0)
            low, high = run.first - self._forgotten, end - self._forgotten
            if high > low >= 0:
                longest = max(self._gaps.greatest(low + 1, high + 1), longest or 0.0)
            previous_end = end
        return longest

    def _most_prefill_of_others(self, track: Track, last: int) -> int:
        most, tokens, forgotten = 0.0, self._prefill_tokens, self._forgotten
        for chunk in track.chunks:
            if chunk.step <= last:
                most = max(most, tokens[chunk.step - forgotten] - chunk.tokens)
        for run in track.decodings:
            end = last if run.last is None else run.last
            if end > run.first:
                most = max(most, tokens.greatest(run.first + 1 - forgotten, end + 1 - forgotten))
        return int(most)


def _summing_to(
    total: float, own: float, others_prefill: float, preempted: float, stall: float
) -> RequestPhaseParts:
    """Return parts that sum to `total`. `others_decode` is the remainder. The other parts may
    exceed `total`, because of rounding or because the model lacks some work. Then the modelled
    parts, `own` and `others_prefill`, are scaled down."""
    preempted = min(preempted, total)
    stall = min(stall, total - preempted)
    modelled = own + others_prefill
    room = total - preempted - stall
    if modelled > room:
        shrink = room / modelled if modelled > 0 else 0.0
        own, others_prefill = own * shrink, others_prefill * shrink
    others_decode = max(0.0, total - preempted - stall - own - others_prefill)
    return RequestPhaseParts(own, others_prefill, others_decode, preempted, stall)
