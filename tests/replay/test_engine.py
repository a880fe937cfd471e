from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.engine import ReplayEngine
from replay.engine_config import EngineConfig
from replay.job import Blocked, Job, ReplayQueueParts
from replay.kv_cache import blocks_for
from replay.step_clock import Stall

SMALL = EngineConfig(
    max_num_batched_tokens=64, max_num_seqs=6, max_model_len=320, num_gpu_blocks=24
)
ROOMY = EngineConfig()


@dataclass(frozen=True)
class Ask:
    gap_s: float
    prompt: int
    output: int
    prefix: int


ASKS = st.lists(
    st.builds(
        Ask,
        gap_s=st.floats(0.0, 0.08),
        prompt=st.integers(1, 200),
        output=st.integers(1, 120),
        prefix=st.sampled_from([0, 40, 100]),
    ),
    min_size=1,
    max_size=25,
)


def _jobs(asks: list[Ask]) -> list[Job]:
    at, jobs = 0.0, []
    for number, ask in enumerate(asks):
        at += ask.gap_s
        shared = ((f"p{ask.prefix}", ask.prefix),) if 0 < ask.prefix < ask.prompt else ()
        jobs.append(Job(number, ask.prompt, ask.output, at, shared))
    return jobs


def _run(
    engine: ReplayEngine, jobs: list[Job], look: Callable[[], None] = lambda: None
) -> list[Job]:
    ended = []
    for job in jobs:
        ended += engine.advance(job.queued)
        engine.submit(job)
        look()
    until = jobs[-1].queued
    while engine.outstanding:
        until += 0.05
        ended += engine.advance(until)
        look()
    return ended


def _unhurried(config: EngineConfig, stalls: tuple[Stall, ...] = ()) -> ReplayEngine:
    """Return an engine without the shortcut for steps that only decode."""
    engine = ReplayEngine(config, "seed", stalls)
    engine._run_plain_decodes = lambda until: None  # type: ignore[method-assign]
    return engine


@given(ASKS)
def test_every_job_ends_once_with_all_its_tokens(asks: list[Ask]) -> None:
    jobs = _jobs(asks)
    engine = ReplayEngine(SMALL, "seed")
    ended = _run(engine, jobs)
    assert sorted(job.number for job in ended) == list(range(len(asks)))
    for job, ask in zip(jobs, asks, strict=True):
        assert job.made_tokens == ask.output
        assert job.computed_tokens == ask.prompt + ask.output - 1
        assert len(job.preempted_at) == len(job.resumed_at)
        assert job.cached_tokens is not None
        assert job.cached_tokens < ask.prompt
    assert engine.totals.preemptions == sum(len(job.preempted_at) for job in jobs)
    assert engine.kv.free == SMALL.num_gpu_blocks


@given(ASKS)
def test_the_instants_are_in_order(asks: list[Ask]) -> None:
    for job in _run(ReplayEngine(SMALL, "seed"), _jobs(asks)):
        assert job.scheduled is not None
        assert job.first_token is not None
        assert job.last_token is not None
        assert job.queued <= job.scheduled < job.first_token <= job.last_token
        moves = [at for pair in zip(job.preempted_at, job.resumed_at, strict=True) for at in pair]
        assert moves == sorted(moves)
        assert all(job.scheduled <= at <= job.last_token for at in moves)


@given(ASKS)
def test_the_parts_sum_to_prefill_and_to_decode(asks: list[Ask]) -> None:
    stalls = (Stall(0.1, 0.2), Stall(0.5, 0.3))
    for job in _run(ReplayEngine(SMALL, "seed", stalls), _jobs(asks)):
        assert job.scheduled is not None
        assert job.first_token is not None
        assert job.last_token is not None
        phases = (job.first_token - job.scheduled, job.last_token - job.first_token)
        parts = [shares.of(s) for shares, s in zip((job.prefill, job.decode), phases, strict=True)]
        for phase_s, split in zip(phases, parts, strict=True):
            assert min(split) >= -1e-12
            assert sum(split) == pytest.approx(phase_s, abs=1e-9)
        assert any(split.preempted > 0 for split in parts) == bool(job.preempted_at)


@given(ASKS)
def test_no_block_is_leaked_or_used_twice(asks: list[Ask]) -> None:
    engine = ReplayEngine(SMALL, "seed")

    def steps() -> int:
        return engine._lockstep.count

    def look() -> None:
        kv = engine.kv
        assert min(kv.free, kv.blank) >= 0
        assert kv.free == kv.idle_blocks() + kv.blank
        held = SMALL.num_gpu_blocks - kv.free
        needed = sum(
            blocks_for(
                job.computed_tokens
                + (engine._lockstep.count - job.joined if job.joined >= 0 else 0)
            )
            for job in engine._running.values()
        )
        in_flight = len(engine._running) + blocks_for(SMALL.max_num_batched_tokens)
        shared = sum(job.lease.shared for job in engine._running.values())
        assert needed - shared <= held <= needed + in_flight + kv.held_prefix_blocks()
        assert engine.running <= SMALL.max_num_seqs

    _run(engine, _jobs(asks), look)


@given(ASKS, st.booleans())
def test_the_shortcut_for_plain_decodes_does_not_change_the_outcome(
    asks: list[Ask], ahead: bool
) -> None:
    config, stalls = replace(SMALL, async_scheduling=ahead), (Stall(0.1, 0.2), Stall(0.7, 0.3))
    short = ReplayEngine(config, "seed", stalls)
    long = _unhurried(config, stalls)
    for quick, slow in zip(_run(short, _jobs(asks)), _run(long, _jobs(asks)), strict=True):
        assert quick.number == slow.number
        for name in ("scheduled", "first_token", "last_token", "itl_max_s"):
            assert getattr(quick, name) == pytest.approx(getattr(slow, name), abs=1e-9)
        for phase in ("prefill", "decode"):
            mine, its = (astuple(getattr(job, phase)) for job in (quick, slow))
            assert mine == pytest.approx(its, abs=1e-9)
    assert short.totals.steps == long.totals.steps
    assert short.totals.decode_tokens == long.totals.decode_tokens
    assert short.totals.prefill_tokens == long.totals.prefill_tokens
    assert short.totals.busy_s == pytest.approx(long.totals.busy_s)


@given(ASKS)
def test_the_running_sums_agree_with_going_through_the_steps(asks: list[Ask]) -> None:
    engine = _unhurried(replace(SMALL, num_gpu_blocks=400), (Stall(0.1, 0.2),))
    steps = []
    computed: list[dict[int, int]] = []
    blocked: list[str | None] = []
    end_step = engine._end_step

    def watch(step, ended):  # type: ignore[no-untyped-def]
        own = {job.number: share for job, _, share in step.chunks}
        steps.append((step.start, step.end, step.prefill_s, step.stall_s, own))
        computed.append({job.number: tokens for job, tokens, _ in step.chunks})
        blocked.append(step.blocked_by)
        end_step(step, ended)

    engine._end_step = watch  # type: ignore[method-assign]
    jobs = _jobs(asks)
    _run(engine, jobs)
    assert all(one[1] <= other[0] for one, other in pairwise(steps))
    assert engine.totals.busy_s == pytest.approx(sum(end - start for start, end, *_ in steps))
    for job in jobs:
        assert job.scheduled is not None
        assert job.last_token is not None
        mine = [step for step in steps if job.scheduled <= step[0] and step[1] <= job.last_token]
        others = sum(prefill - own.get(job.number, 0.0) for _, _, prefill, _, own in mine)
        shares = (job.prefill, job.decode)
        assert sum(s.others_prefill_s for s in shares) == pytest.approx(others, abs=1e-9)
        stalls_s = sum(stall for *_, stall, _ in mine)
        assert sum(s.stall_s for s in shares) == pytest.approx(stalls_s, abs=1e-9)
        gaps = [end - start for start, end, *_ in mine if start >= (job.first_token or 0.0)]
        assert job.itl_max_s == (pytest.approx(max(gaps)) if gaps else None)
        tokens = [
            sum(each.values()) - each.get(job.number, 0)
            for step, each in zip(steps, computed, strict=True)
            # A preempted job takes part in no step.
            if job.scheduled <= step[0]
            and step[1] <= job.last_token
            and not any(
                gone <= step[0] < back
                for gone, back in zip(job.preempted_at, job.resumed_at, strict=True)
            )
        ]
        assert job.others_prefill_tokens_max == max(tokens)
        for field, waited_s in zip(Blocked._fields, job.queue, strict=False):
            spent_s = sum(
                step[1] - step[0]
                for step, by in zip(steps, blocked, strict=True)
                if by == field and job.queued <= step[0] and step[1] <= job.scheduled
            )
            assert waited_s == pytest.approx(spent_s, abs=1e-9)
        assert sum(job.queue) == pytest.approx(job.scheduled - job.queued, abs=1e-9)


def _queue(config: EngineConfig, *jobs: Job) -> ReplayQueueParts:
    """Return the reasons why the last job waited in the queue, as shares of the wait."""
    engine = ReplayEngine(replace(config, step_noise_ratio=0.0), "seed")
    _run(engine, list(jobs))
    assert sum(jobs[-1].queue) > 0
    return ReplayQueueParts(*(waited_s / sum(jobs[-1].queue) for waited_s in jobs[-1].queue))


def test_queue_time_is_divided_by_reason() -> None:
    running = Job(0, 100, 200, 0.0)
    seats = _queue(replace(ROOMY, max_num_seqs=1), running, Job(1, 100, 2, 0.5))
    assert seats.seats > 0.99
    large, another = Job(0, 1000, 200, 0.0), Job(1, 1000, 2, 0.5)
    kv = _queue(replace(ROOMY, max_model_len=1200, num_gpu_blocks=100), large, another)
    assert kv.kv > 0.99
    long, behind = Job(0, 30_000, 2, 0.0), Job(1, 100, 2, 0.001)
    budget = _queue(replace(ROOMY, max_num_batched_tokens=512), long, behind)
    assert budget.budget > 0.9


def test_a_request_is_noted_between_two_steps() -> None:
    decoding, beside = Job(0, 100, 200, 0.0), Job(1, 100, 2, 0.5001)
    _run(ReplayEngine(replace(ROOMY, step_noise_ratio=0.0), "seed"), [decoding, beside])
    assert beside.handed == 0.5001
    assert 0.0 < beside.queued - 0.5001 < ROOMY.step.base_s * 1.1
    assert beside.scheduled == beside.queued
    assert sum(beside.queue) == 0.0


def test_few_blocks_cause_preemptions_and_all_jobs_finish() -> None:
    asks = [Ask(0.0, 60, 120, 0) for _ in range(8)]
    engine = ReplayEngine(SMALL, "seed")
    jobs = _run(engine, _jobs(asks))
    assert engine.totals.preemptions > 0
    assert len(jobs) == 8
    evicted = [job for job in jobs if job.preempted_at]
    assert evicted
    assert all((job.itl_max_s or 0.0) > 0.05 for job in evicted)
    # The oldest job is never preempted.
    assert not next(job for job in jobs if job.number == 0).preempted_at


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    engine = ReplayEngine(replace(ROOMY, max_num_batched_tokens=512, step_noise_ratio=0.0), "seed")
    beside, long = Job(0, 16, 400, 0.0), Job(1, 5110, 2, 0.5)
    _run(engine, [beside, long])
    assert long.scheduled is not None
    assert long.first_token is not None
    # The decode uses one of each step's 512 tokens, so the prompt has ten chunks of up to 511.
    step = ROOMY.step
    min_s = 10 * step.base_s + 5110 * step.prefill_token_s
    assert min_s < long.first_token - long.scheduled < min_s * 1.2
    assert 0.02 < (beside.itl_max_s or 0.0) < 0.04


def test_a_single_request_waits_for_no_other() -> None:
    engine = ReplayEngine(replace(ROOMY, step_noise_ratio=0.0), "seed")
    job = Job(0, 1000, 11, 3.0)
    _run(engine, [job])
    assert job.scheduled == 3.0
    assert job.last_token is not None
    assert job.first_token is not None
    whole = ((job.prefill, job.first_token - 3.0), (job.decode, job.last_token - job.first_token))
    for shares, phase_s in whole:
        assert shares.of(phase_s) == pytest.approx((phase_s, 0, 0, 0, 0), abs=1e-9)
    step = ROOMY.step
    assert job.first_token == pytest.approx(3.0 + step.step_s(step.prefill_s(1000, 0), 0, 0))
    decode_s = sum(step.step_s(0.0, 1000 + made, 1) for made in range(10))
    assert (job.last_token or 0) - (job.first_token or 0) == pytest.approx(decode_s)
    assert job.itl_max_s == pytest.approx(step.step_s(0.0, 1009, 1))


def test_a_stall_shows_in_every_running_request_and_in_no_other() -> None:
    engine = ReplayEngine(ROOMY, "seed", [Stall(1.0, 0.4)])
    there = [Job(0, 10, 300, 0.5), Job(1, 10, 300, 0.6)]
    later = Job(2, 10, 20, 2.0)
    _run(engine, [*there, later])
    for job in there:
        assert 0.38 < job.decode.stall_s <= 0.4
        assert (job.itl_max_s or 0.0) > 0.39
    assert later.prefill.stall_s == later.decode.stall_s == 0.0


def test_a_shared_prefix_is_found_in_whole_blocks() -> None:
    """100 shared tokens contain six whole blocks, 96 tokens."""
    engine = ReplayEngine(ROOMY, "seed")
    first, second = Job(0, 200, 2, 0.0, (("p", 100),)), Job(1, 300, 2, 1.0, (("p", 100),))
    _run(engine, [first, second])
    assert (first.cached_tokens, second.cached_tokens) == (0, 96)
    assert (engine.totals.cache_query_tokens, engine.totals.cache_hit_tokens) == (500, 96)


def test_at_most_max_num_seqs_run_together() -> None:
    engine = ReplayEngine(replace(ROOMY, max_num_seqs=2), "seed")
    jobs = [Job(number, 10, 50, 0.0) for number in range(3)]
    _run(engine, jobs)
    assert (jobs[2].scheduled or 0.0) >= min(jobs[0].last_token or 0, jobs[1].last_token or 0)


def test_a_request_that_arrives_during_a_step_misses_the_next_one() -> None:
    """With asynchronous scheduling, the next step is already planned."""
    for ahead, steps_missed in ((False, 1), (True, 2)):
        config = replace(ROOMY, async_scheduling=ahead, step_noise_ratio=0.0)
        jobs = [Job(0, 10, 50, 0.0), Job(1, 10, 2, 0.1)]
        _run(ReplayEngine(config, "seed"), jobs)
        step_s = config.model.step_s(0.0, 30, 1)
        arrived, first = jobs[1].handed, jobs[1].first_token
        assert arrived is not None
        assert first is not None
        # The wait consists of the rest of the current step, the planned steps and the request's own
        # step.
        assert (steps_missed - 1) * step_s < first - arrived < (steps_missed + 1.2) * step_s


def test_a_slot_is_free_one_step_later_with_asynchronous_scheduling() -> None:
    waits_s = []
    for ahead in (False, True):
        config = replace(ROOMY, async_scheduling=ahead, max_num_seqs=2, step_noise_ratio=0.0)
        jobs = [Job(0, 10, 50, 0.0), Job(1, 10, 20, 0.0), Job(2, 10, 20, 0.0)]
        _run(ReplayEngine(config, "seed"), jobs)
        waits_s.append((jobs[2].first_token or 0.0) - (jobs[1].last_token or 0.0))
    step_s = ROOMY.model.step_s(0.0, 30, 1)
    assert waits_s[1] - waits_s[0] == pytest.approx(step_s, rel=0.1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_num_batched_tokens", 0),
        ("max_num_batched_tokens", 100),
        ("max_num_seqs", 0),
        ("num_gpu_blocks", 10),
        ("max_model_len", -1),
        ("step_noise_ratio", 1.0),
    ],
)
def test_a_configuration_that_cannot_run_is_refused(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{key}: {value}; allowed: "):
        replace(ROOMY, **{key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "key"),
    [
        (Job(1, 0, 5, 2.0), "prompt_tokens"),
        (Job(1, 5, 0, 2.0), "output_tokens"),
        (Job(1, 32_768, 1, 2.0), "32769"),
        (Job(1, 5, 5, -0.5), "queued"),
    ],
)
def test_a_job_that_cannot_be_served_is_refused(job: Job, key: str) -> None:
    engine = ReplayEngine(ROOMY, "seed")
    engine.submit(Job(0, 5, 5, 1.0))
    with pytest.raises(ValueError, match=f"{key}.*allowed"):
        engine.submit(job)


def test_an_external_cache_is_waited_for_and_saves_prefill() -> None:
    engine = ReplayEngine(replace(ROOMY, kv_connector=True, step_noise_ratio=0.0), "seed")
    job = Job(0, 1000, 2, 1.0, fetch_s=0.3, fetched_tokens=900)
    engine.submit(job)
    assert engine.advance(1.2) == []
    assert (engine.waiting, engine.deferred, engine.fetching) == (1, 1, 1)
    assert engine.totals.steps == 0
    beside = Job(1, 10, 300, 1.21)
    engine.submit(beside)
    engine.advance(1.25)
    assert (engine.waiting, engine.deferred, engine.fetching) == (1, 1, 1)
    engine.advance(9.0)
    assert job.scheduled == pytest.approx(1.3, abs=0.02)
    assert job.queue.held == pytest.approx(0.3)
    assert (job.cached_tokens, job.external_cached_tokens) == (900, 900)
    assert engine.totals.prefill_tokens == 100 + 10
    assert (engine.totals.external_hit_tokens, engine.totals.transferred_tokens) == (900, 900)


def test_lost_blocks_stop_the_queue_and_leave_room_for_one() -> None:
    engine = ReplayEngine(replace(ROOMY, step_noise_ratio=0.0), "seed")
    engine.lost_blocks = ROOMY.num_gpu_blocks - 100
    jobs = [Job(0, 1400, 100, 0.0), Job(1, 1400, 5, 0.1), Job(2, 8000, 50, 0.2)]
    _run(engine, jobs)
    assert jobs[1].queue.kv > 0.5
    assert jobs[2].last_token is not None


def test_a_cold_engine_is_slower_once_per_batch_shape() -> None:
    engine = ReplayEngine(replace(ROOMY, step_noise_ratio=0.0), "seed", new_shape_s=0.5)
    first, again = Job(0, 500, 20, 0.0), Job(1, 500, 20, 5.0)
    _run(engine, [first, again])
    assert first.prefill.stall_s == pytest.approx(0.5)
    assert first.decode.stall_s == pytest.approx(0.5)
    assert again.prefill.stall_s == again.decode.stall_s == 0.0


@given(ASKS)
@settings(max_examples=40, deadline=None)
def test_jobs_are_billed_the_whole_duration_of_the_steps(asks: list[Ask]) -> None:
    engine = _unhurried(replace(SMALL, num_gpu_blocks=400), (Stall(0.1, 0.2),))
    tight = ReplayEngine(SMALL, "seed", (), 0.0)
    for each in (engine, tight):
        jobs = _jobs(asks)
        _run(each, jobs)
        billed = sum(job.billed_s + job.wasted_s for job in jobs)
        assert billed == pytest.approx(each.totals.busy_s, rel=1e-9)
        assert all(job.wasted_s == 0 or job.preempted_at for job in jobs)


def _first_tokens(config: EngineConfig, *jobs: Job) -> list[float]:
    _run(ReplayEngine(replace(config, step_noise_ratio=0.0), "seed"), list(jobs))
    return [job.first_token or 0.0 for job in jobs]


def test_the_highest_priority_is_served_first() -> None:
    """A lower value is a higher priority. Only waiting jobs are compared."""
    jobs = [
        Job(number, 100, 20, 0.001 * number, priority=priority)
        for number, priority in enumerate((0, 5, 5, 1))
    ]
    config = replace(ROOMY, max_num_seqs=1)
    one, two, three, four = _first_tokens(replace(config, policy="priority"), *jobs)
    assert one < four < two < three
    jobs = [Job(job.number, 100, 20, job.handed or 0.0, priority=job.priority) for job in jobs]
    in_order = _first_tokens(config, *jobs)
    assert in_order == sorted(in_order)


def test_the_job_with_the_lowest_priority_is_preempted() -> None:
    """A low-priority job is preempted even if it came first, and resumes after the others."""
    jobs = [Job(number, 60, 120, 0.0, priority=-number) for number in range(8)]
    engine = ReplayEngine(replace(SMALL, policy="priority"), "seed")
    _run(engine, jobs)
    assert engine.totals.preemptions > 0
    assert not jobs[7].preempted_at
    assert jobs[0].last_token == max(job.last_token or 0.0 for job in jobs)


def test_long_prompts_leave_room_in_the_budget_for_short_ones() -> None:
    """A limit on the chunks of long prompts leaves tokens for a short prompt in the same steps."""
    config = replace(ROOMY, max_num_batched_tokens=512)

    def short_s(threshold: int) -> float:
        jobs = (Job(0, 8000, 2, 0.0), Job(1, 50, 2, 0.001))
        return _first_tokens(replace(config, long_prefill_token_threshold=threshold), *jobs)[1]

    assert short_s(256) < 0.3 * short_s(0)


def test_without_short_prompts_a_long_prompt_has_the_whole_budget() -> None:
    config = replace(ROOMY, max_num_batched_tokens=512)
    limited = replace(config, long_prefill_token_threshold=64)
    assert _first_tokens(limited, Job(0, 4000, 2, 0.0)) == _first_tokens(
        config, Job(0, 4000, 2, 0.0)
    )


def test_blocks_for_a_whole_prompt_can_be_required() -> None:
    """The prompt waits for all of its blocks. If it started earlier, it would be preempted."""
    config = replace(ROOMY, max_num_batched_tokens=256, max_model_len=2048, num_gpu_blocks=130)

    def preemptions(*, whole: bool) -> int:
        engine = ReplayEngine(replace(config, scheduler_reserve_full_isl=whole), "seed")
        _run(engine, [Job(0, 1000, 200, 0.0), Job(1, 1500, 5, 0.1)])
        return engine.totals.preemptions

    assert preemptions(whole=False) > 0
    assert preemptions(whole=True) == 0


@pytest.mark.parametrize("size", [1, 8, 32])
def test_a_shared_prefix_is_found_in_blocks_of_any_size(size: int) -> None:
    engine = ReplayEngine(replace(ROOMY, block_size=size, num_gpu_blocks=40_000), "seed")
    first, second = Job(0, 200, 2, 0.0, (("p", 100),)), Job(1, 300, 2, 1.0, (("p", 100),))
    _run(engine, [first, second])
    assert second.cached_tokens == 100 // size * size


def test_jobs_may_be_submitted_out_of_order() -> None:
    """One front end may be slower than another, so requests arrive out of order."""
    engine = ReplayEngine(replace(ROOMY, step_noise_ratio=0.0), "seed")
    late, early = Job(0, 10, 5, 2.0), Job(1, 10, 5, 1.0)
    engine.submit(late)
    engine.submit(early)
    assert engine.advance(9.0) == [early, late]
    assert (early.queued, late.queued) == (1.0, 2.0)
