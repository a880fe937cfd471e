import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailspan_vllm.engine_core.step_billing import (
    BY_TOKENS,
    BilledTime,
    Billing,
    Chunk,
    Decoding,
)
from tailspan_vllm.engine_core.step_ledger import Ledger, Track
from tailspan_vllm.engine_core.step_model import FittedStepModel, StepWork


@dataclass
class Run:
    """A simulated engine in which requests are computed, preempted and ended at random."""

    chance: random.Random
    ledger: Ledger
    now: float = 0.0
    busy: float = 0.0
    bills: list[BilledTime] = field(default_factory=list)
    live: list["Request"] = field(default_factory=list)

    def step(self) -> None:
        number = self.ledger.next_step
        work, chunks = [0.0] * 4, []
        for request in self.live:
            if request.left:
                chunks.append((request, min(request.left, self.chance.randint(1, 600))))
            else:
                work[2] += request.computed
                work[3] += 1
                request.computed += 1
        for request, tokens in chunks:
            chunk = Chunk(number, tokens, tokens * (request.computed + tokens / 2))
            request.track.chunks.append(chunk)
            work[0] += tokens
            work[1] += chunk.attention
            request.computed += tokens
            request.left -= tokens
            if not request.left:
                request.track.decodings.append(Decoding(number, request.computed))
        took = 0.002 + 1e-5 * work[0] + 1e-7 * work[2] + self.chance.expovariate(1000)
        took += self.chance.choice([0] * 20 + [0.5])
        self.ledger.end_step(StepWork(*work), self.now, self.now + took, len(self.live))
        self.now += took
        self.busy += took

    def end(self, request: "Request") -> None:
        self.live.remove(request)
        account = self.ledger.settle(request.track)
        assert account is not None
        assert account.bill is not None
        self.bills.append(account.bill)

    def evict(self, request: "Request") -> None:
        last = self.ledger.next_step - 1
        request.track.evicted_after.append(last)
        if request.track.decodings and request.track.decodings[-1].last is None:
            request.track.decodings[-1].last = last
        request.track.resumed_in.append(last + 1)
        request.left, request.computed = request.left + request.computed, 0


@dataclass(eq=False)
class Request:
    track: Track
    left: int
    computed: int = 0


@given(st.integers(0, 2**32), st.integers(64, 400))
@settings(max_examples=25, deadline=None)
def test_the_requests_bill_equals_the_steps_duration(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    run = Run(chance, Ledger())
    for number in range(steps):
        if not run.live or (chance.random() < 0.2 and len(run.live) < 12):
            run.live.append(Request(Track(str(number), run.now), chance.randint(1, 2000)))
        run.step()
        for request in tuple(run.live):
            if chance.random() < 0.05:
                run.end(request)
            elif chance.random() < 0.03:
                run.evict(request)
    for request in tuple(run.live):
        run.end(request)
    billed = sum(bill.billed_s + bill.wasted_s for bill in run.bills)
    assert billed == pytest.approx(run.busy, rel=1e-9)
    assert all(bill.billed_s >= 0 and bill.wasted_s >= -1e-12 for bill in run.bills)


def billing(steps: int, model: tuple[float, ...] = BY_TOKENS) -> Billing:
    """Return a billing after steps of 1 s; each step has one prefill token and one decode."""
    made = Billing()
    for step in range(steps):
        made.enter(step, StepWork(1, 0.5, 100.0, 1), 2, 1.0, model)
    return made


def test_recomputed_tokens_are_waste() -> None:
    made = Billing()
    for step, tokens in enumerate((100, 100, 1, 200)):
        decodes = 1 if tokens == 1 else 0
        made.enter(step, StepWork(tokens * (1 - decodes), 0, 0, decodes), 1, 1.0, BY_TOKENS)
    chunks = [Chunk(0, 100, 5e3), Chunk(1, 100, 15e3), Chunk(3, 201, 201 * 100.5)]
    bill = made.of(chunks, [Decoding(1, 200, 2), Decoding(3, 201)], 3)
    assert bill == pytest.approx((3.0, 201 / 200))


def test_a_chunk_that_goes_beyond_what_was_lost_is_waste_in_part() -> None:
    """The preemption lost 100 of the next chunk's 200 tokens; the other 100 tokens are new."""
    made = Billing()
    for step, tokens in enumerate((100, 200)):
        made.enter(step, StepWork(tokens, 0, 0, 0), 1, 1.0, BY_TOKENS)
    bill = made.of([Chunk(0, 100, 5e3), Chunk(1, 200, 2e4)], [], 1)
    assert bill == pytest.approx((1.5, 0.5))


def test_after_a_failed_load_only_the_requests_own_tokens_are_waste() -> None:
    """The first chunk follows 80 tokens that should have been loaded."""
    made = Billing()
    for step, tokens in enumerate((20, 50, 50)):
        made.enter(step, StepWork(tokens, 0, 0, 0), 1, 1.0, BY_TOKENS)
    chunks = [Chunk(0, 20, 20 * 90.0), Chunk(1, 50, 50 * 25.0), Chunk(2, 50, 50 * 75.0)]
    assert made.of(chunks, [], 2) == pytest.approx((2.6, 0.4))
    # after a preemption, all of it is work that the preemption discarded
    assert made.of(chunks, [], 2, [0]) == pytest.approx((1.0, 2.0))


def test_the_base_of_a_step_is_shared_by_head() -> None:
    bill = billing(10, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)).of([], [Decoding(0, 5, None)], 9)
    assert bill.billed_s == pytest.approx(9 / 2)


def test_forgotten_steps_do_not_shift_the_sums() -> None:
    made = billing(1000)
    before = made.of([Chunk(700, 1, 0.5)], [Decoding(700, 1)], 999)
    made.forget(600)
    assert made.of([Chunk(700, 1, 0.5)], [Decoding(700, 1)], 999) == pytest.approx(before)


def test_without_a_fit_tokens_share_the_step() -> None:
    ledger = Ledger(FittedStepModel())
    ledger.end_step(StepWork(30, 450.0, 0, 10), 0.0, 4.0, 11)
    account = ledger.settle(Track("a", 0.0, chunks=[Chunk(0, 30, 450.0)]))
    assert account is not None
    assert account.bill == pytest.approx((3.0, 0.0))
