import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailspan_vllm.engine_core.step_billing import Chunk, Decoding
from tailspan_vllm.engine_core.step_ledger import Ledger, RequestEngineTime, Track
from tailspan_vllm.engine_core.step_model import FittedStepModel, StepWork
from tailspan_vllm.request.parts import RequestPhaseParts


class KnownModel(FittedStepModel):
    """A step model that is not fitted: γ = 5 ms, α = 10 µs, κ = 0, β = 0.1 µs, δ = 0.1 ms."""

    def __init__(self) -> None:
        super().__init__()
        self._coefficients = [5e-3, 1e-2, 0.0, 1e-2, 1e-2, 0.0]
        self.coefficients = (5e-3, 1e-5, 0.0, 1e-7, 1e-4, 0.0)
        self.steps = 1000

    def learn(self, work: StepWork, duration: float) -> None:
        """Do nothing."""


def decode_step(others: int = 0, prefill: int = 0) -> StepWork:
    """Return a step with decodes of our request and `others` other requests, with 1,000 tokens of
    context each."""
    return StepWork(prefill, 0.0, 1000.0 * (others + 1), others + 1)


def run(ledger: Ledger, works: list[StepWork], extra: dict[int, float] | None = None) -> None:
    now = 100.0
    for number, work in enumerate(works):
        begun, now = now, now + ledger.model.predict(work) + (extra or {}).get(number, 0.0)
        ledger.end_step(work, begun, now, 1)


def tracked(prefill: int, decodes: int) -> Track:
    """Return a request scheduled at 100 s: one prefill step, then a decode in each step."""
    return Track(
        "r",
        scheduled=100.0,
        chunks=[Chunk(0, prefill, prefill * prefill / 2)],
        decodings=[Decoding(0, prefill, decodes)],
    )


def settled(
    ledger: Ledger, track: Track
) -> tuple[RequestEngineTime, RequestPhaseParts, RequestPhaseParts]:
    """Return the account, and its parts of the prefill and of the decode."""
    account = ledger.settle(track)
    assert account is not None
    assert account.prefill is not None
    assert account.decode is not None
    return account, account.prefill, account.decode


def test_a_request_alone_has_only_own_time() -> None:
    ledger = Ledger(KnownModel())
    run(ledger, [StepWork(1000, 5e5, 0, 0), *(StepWork(0, 0, 1000 + k, 1) for k in range(1, 50))])
    _, prefill, decode = settled(ledger, tracked(1000, 49))
    assert prefill.own == pytest.approx(0.015)
    assert decode.own == pytest.approx(sum(decode), rel=1e-9)


def test_a_co_scheduled_prefill_is_charged_to_others_prefill() -> None:
    """10,000 prefill tokens add α · 10,000 = 100 ms to a decode step."""
    ledger = Ledger(KnownModel())
    works = [StepWork(1000, 5e5, 0, 0), *(decode_step() for _ in range(20))]
    works[10] = decode_step(prefill=10_000)
    run(ledger, works)
    account, _, decode = settled(ledger, tracked(1000, 20))
    assert decode.others_prefill == pytest.approx(0.1, rel=0.01)
    assert decode.stall == 0.0
    assert account.itl_max_s == pytest.approx(0.1052, rel=0.01)


def test_batch_growth_is_charged_to_others_decode() -> None:
    """Ten more requests with 1,000 tokens of context add 10 × (β·1,000 + δ) to each step."""
    ledger = Ledger(KnownModel())
    run(ledger, [StepWork(1000, 5e5, 0, 0), *(decode_step(others=10) for _ in range(20))])
    _, _, decode = settled(ledger, tracked(1000, 20))
    assert decode.others_decode == pytest.approx(20 * 10 * 2e-4, rel=0.05)


def test_a_frozen_engine_is_a_stall_of_every_running_request() -> None:
    ledger = Ledger(KnownModel())
    run(ledger, [StepWork(1000, 5e5, 0, 0), *(decode_step() for _ in range(20))], extra={7: 1.0})
    _, _, decode = settled(ledger, tracked(1000, 20))
    assert decode.stall == pytest.approx(1.0, rel=1e-6)


def encoding(ledger: Ledger, encoder_s: float) -> None:
    """Run one step that prefills two requests and encodes images, and then 20 decode steps."""
    work = StepWork(2000, 1e6, 0, 0)
    ended = 100.0 + ledger.model.predict(work) + encoder_s
    ledger.end_step(work, 100.0, ended, 2, encodes=True)
    for _ in range(20):
        begun, ended = ended, ended + ledger.model.predict(decode_step(others=1))
        ledger.end_step(decode_step(others=1), begun, ended, 2)


def test_the_encoders_time_is_own_work_of_the_requests_with_images() -> None:
    """Our request has three quarters of the encoded tokens; another request has a quarter."""
    ledger = Ledger(KnownModel())
    encoding(ledger, 0.8)
    track = tracked(1000, 20)
    track.has_encoder = True
    track.chunks = [Chunk(0, 1000, 5e5, 0.75)]
    account, prefill, _ = settled(ledger, track)
    assert account.encoder_s == pytest.approx(0.6)
    assert prefill.own == pytest.approx(0.6 + 0.005 + 0.01)
    assert prefill.others_prefill == pytest.approx(0.2 + 0.01)
    assert prefill.stall == 0.0
    assert sum(prefill) == pytest.approx(0.825)


def test_the_encoder_delays_requests_without_images() -> None:
    ledger = Ledger(KnownModel())
    works = [StepWork(1000, 5e5, 0, 0), *(decode_step() for _ in range(5))]
    run(ledger, works)
    begun = 100.0 + sum(map(ledger.model.predict, works))
    work = decode_step(prefill=1000)
    ledger.end_step(work, begun, begun + ledger.model.predict(work) + 0.8, 2, encodes=True)
    track = tracked(1000, 6)
    track.has_encoder = True
    account, _, decode = settled(ledger, track)
    assert account.encoder_s == 0.0
    assert decode.others_prefill == pytest.approx(0.8 + 0.01, rel=1e-4)
    assert decode.stall == 0.0


def test_a_model_without_an_encoder_has_no_encoder_time() -> None:
    ledger = Ledger(KnownModel())
    run(ledger, [StepWork(1000, 5e5, 0, 0), decode_step()])
    account = ledger.settle(tracked(1000, 1))
    assert account is not None
    assert account.encoder_s is None


def test_the_step_model_does_not_learn_from_the_encoder() -> None:
    ledger = Ledger()
    now = 100.0
    for number in range(400):
        encodes = number % 4 == 0
        work = StepWork(200 + number % 7 * 100, 0.0, 1000.0, 1)
        length_s = 0.005 + 1e-5 * work.prefill_tokens + (0.5 if encodes else 0.0)
        ledger.end_step(work, now, now + length_s, 2, encodes=encodes)
        now += length_s
    assert ledger.model.predict(StepWork(500, 0.0, 1000.0, 1)) == pytest.approx(0.01, rel=0.02)


def test_preemption_is_from_eviction_to_having_caught_up() -> None:
    ledger = Ledger(KnownModel())
    run(ledger, [StepWork(1000, 5e5, 0, 0), *(decode_step() for _ in range(20))])
    track = tracked(1000, 5)
    track.evicted_after, track.resumed_in = [5], [9]
    track.chunks.append(Chunk(9, 1005, 5e5))
    track.decodings.append(Decoding(9, 1005))
    account, _, decode = settled(ledger, track)
    step_s = ledger.model.predict(decode_step())
    assert decode.preempted == pytest.approx(4 * step_s, rel=1e-6)
    assert account.itl_max_s == pytest.approx(4 * step_s, rel=1e-6)


def test_steps_in_which_a_waiting_prefill_had_no_part_are_the_others() -> None:
    """With asynchronous scheduling, a request may be admitted while a step without it runs."""
    ledger = Ledger(KnownModel())
    run(ledger, [StepWork(10_000, 5e7, 0, 0), StepWork(1000, 5e5, 0, 0)])
    _, prefill, _ = settled(
        ledger,
        Track("r", scheduled=100.0, chunks=[Chunk(1, 1000, 5e5)], decodings=[Decoding(1, 1000)]),
    )
    assert prefill.own == pytest.approx(0.015)
    assert prefill.others_prefill > 0.09


def test_a_request_older_than_the_ring_gets_no_split() -> None:
    ledger = Ledger(KnownModel(), capacity=8)
    run(ledger, [decode_step() for _ in range(64)])
    assert ledger.settle(tracked(1000, 60)) is None


def test_before_the_model_is_ready_the_split_is_unknown_but_the_gap_is_not() -> None:
    ledger = Ledger()
    now = 100.0
    for _ in range(10):
        ledger.end_step(decode_step(), now, now + 0.01, 1)
        now += 0.01
    account = ledger.settle(tracked(10, 9))
    assert account is not None
    assert account.prefill is None
    assert account.decode is None
    assert account.itl_max_s == pytest.approx(0.01)


def test_the_most_prefill_of_others_is_of_one_step() -> None:
    ledger = Ledger(KnownModel())
    works = [StepWork(1300, 0.0, 0, 0), *(decode_step() for _ in range(20))]
    works[3], works[4], works[7] = (decode_step(prefill=tokens) for tokens in (400, 450, 9000))
    works[9] = decode_step(prefill=1405)
    run(ledger, works)
    track = tracked(1000, 5)
    track.evicted_after, track.resumed_in = [5], [9]
    track.chunks.append(Chunk(9, 1005, 5e5))
    track.decodings.append(Decoding(9, 1005))
    account = ledger.settle(track)
    assert account is not None
    assert account.others_prefill_tokens_max == 450
    alone = ledger.settle(Track("r", 100.0, chunks=[Chunk(0, 1000, 0.0)]), last=0)
    assert alone is not None
    assert alone.others_prefill_tokens_max == 300


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 120), st.integers(1, 150))
def test_gaps_and_prefills_are_found_in_the_ring(seed: int, first: int, steps: int) -> None:
    draw = random.Random(seed)
    ledger = Ledger(KnownModel(), capacity=320)
    tokens = [draw.choice((0, draw.randint(1, 5000))) for _ in range(600 + first + steps)]
    works = [decode_step(prefill=each) for each in tokens]
    run(ledger, works, extra={draw.randrange(len(works)): 0.5})
    begin, last = 600 + first - 1, 600 + first + steps - 1
    track = Track(
        "r",
        ledger._end_of(begin - 1),
        chunks=[Chunk(begin, 0, 0.0)],
        decodings=[Decoding(begin, 9)],
    )
    account = ledger.settle(track, last)
    assert account is not None
    assert account.others_prefill_tokens_max == max(tokens[begin : last + 1])
    gaps = [ledger._end_of(k) - ledger._end_of(k - 1) for k in range(begin + 1, last + 1)]
    assert account.itl_max_s == pytest.approx(max(gaps))


@settings(deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_parts_are_positive_and_sum_to_the_phase(seed: int, preempt: bool, chunked: bool) -> None:
    draw = random.Random(seed)
    ledger = Ledger(KnownModel())
    count = draw.randint(12, 60)
    now, ends = 100.0, []
    for _ in range(count):
        work = StepWork(
            draw.choice((0, draw.randint(1, 5000))), 0.0, draw.uniform(0, 1e5), draw.randint(0, 50)
        )
        duration = ledger.model.predict(work) * draw.uniform(0.3, 3.0)
        ledger.end_step(work, now, now + duration, 1)
        now += duration
        ends.append(now)
    first = draw.randint(0, 4)
    prefill_steps = [first, first + 2, first + 3] if chunked else [first]
    done = prefill_steps[-1]
    scheduled = 100.0 if first == 0 else ends[first - 1] - draw.uniform(0, 0.004)
    track = Track(
        "r",
        scheduled=scheduled,
        chunks=[Chunk(step, draw.randint(1, 2000), 0.0) for step in prefill_steps],
        decodings=[Decoding(done, 900)],
    )
    if preempt:
        evicted, back = done + 1, done + draw.randint(2, 4)
        track.decodings[0].last = evicted
        track.evicted_after, track.resumed_in = [evicted], [back]
        track.decodings.append(Decoding(back, 901))
    _, prefill, decode = settled(ledger, track)
    assert sum(prefill) == pytest.approx(ends[done] - scheduled, abs=1e-9)
    assert sum(decode) == pytest.approx(ends[-1] - ends[done], abs=1e-9)
    assert min(*prefill, *decode) >= 0.0


def test_the_launch_of_a_prefill_is_not_a_stall_of_the_step_before_it() -> None:
    """A step of 5.3 ms ends 20 ms late, because the next step's prefill is launched before the
    outputs of this step are read. The prefill's own step ends 3 ms later."""
    ledger = Ledger(KnownModel())
    decode = StepWork(0, 0.0, 1000.0, 2)
    late_s = ledger.model.predict(decode) + 0.020
    ledger.end_step(decode, 100.0, 100.0 + late_s, 2, prefill_follows=True)
    prefill = StepWork(2000, 2e6, 1002.0, 2)
    stall_s = ledger.end_step(prefill, 100.0 + late_s, 100.0 + late_s + 0.003, 3)
    assert stall_s == 0.0
    track = Track("r", scheduled=100.0, chunks=[Chunk(1, 2000, 2e6)], decodings=[Decoding(1, 2000)])
    _, parts, _ = settled(ledger, track)
    assert parts.stall == 0.0
    assert parts.own > 0.020
    assert sum(parts) == pytest.approx(late_s + 0.003)


def test_a_stall_before_a_prefill_remains_a_stall() -> None:
    ledger = Ledger(KnownModel())
    decode, prefill = StepWork(0, 0.0, 1000.0, 2), StepWork(100, 5e3, 1002.0, 2)
    stalled_s = ledger.model.predict(decode) + 1.0
    stalls_s = [
        ledger.end_step(decode, 100.0, 100.0 + stalled_s, 2, prefill_follows=True),
        ledger.end_step(prefill, 100.0 + stalled_s, 100.003 + stalled_s, 3),
    ]
    assert sum(stalls_s) == pytest.approx(1.0, abs=0.01)


def test_the_steps_of_a_gpu_contain_few_stalls() -> None:
    """1,200 steps of vLLM 0.23 with asynchronous scheduling and Llama-3-8B on an H200, without a
    fault. Before the launch of a prefill was added to its own step, 15 % of the time were
    stalls."""

    def stalled(launches: bool) -> float:
        ledger, total_s, stall_s = Ledger(), 0.0, 0.0
        for (ended_s, took_s, *work), following in pairwise(_steps_on_an_h200()):
            overlaps = following[0] - following[1] <= ended_s + 1e-6
            stall_s += ledger.end_step(
                StepWork(*work),
                ended_s - took_s,
                ended_s,
                int(work[3]) + 1,
                prefill_follows=launches and overlaps and following[2] > 0,
            )
            total_s += took_s
        return stall_s / total_s

    assert stalled(launches=False) > 0.1
    assert stalled(launches=True) < 0.02


def _steps_on_an_h200() -> list[list[float]]:
    lines = Path(__file__).with_name("steps_on_an_h200.csv").read_text().splitlines()
    return [[float(cell) for cell in line.split(",")] for line in lines[1:]]
