"""Simulate engines, KV caches, front ends and clients with arrays, in a loop that numba compiles.

Pure. The loop makes the same decisions as `replay.engine`, `replay.kv_cache` and
`replay.reference`, which document the rules. The tests compare the results. The loop visits every
running sequence in every step. In compiled code, these visits are faster than the running sums that
the reference keeps.

The state is in a few arrays of records, because numba takes long to compile functions with many
array arguments. All functions are in one file, because numba's cache detects changes only in the
file of the called function.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from replay.arrivals import FloatArray, IntArray

_Function = TypeVar("_Function", bound=Callable[..., Any])
Records = NDArray[np.void]
Record = Any
"""An element of an array of records, with its fields as attributes."""

_NEVER = np.inf
_NO_LIMIT = 1 << 62
_DRAW_OF_REQUEST, _DRAW_OF_TOKEN = 40_503, 31
"""The factors of `replay.speculation.draw_at`."""
ROUND_ROBIN, MIN_OUTSTANDING = 0, 1
SEATS, KV, TOKENS = 0, 1, 2
_COMING, _WAITING = 0, 2


def _fields(names: str, kind: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names.split()]


OPTIONS: Final = np.dtype(
    _fields("router slack seats step_tokens queue_places max_model_len block_size", "i8")
    + _fields("reuse by_priority reserve_whole ahead", "?")
    + _fields("long_limit drafts key_count", "i8")
    # `adapters`: the maximum number of LoRA adapters in a batch.
    + _fields("adapters", "i8")
    # `left_from`: index of the first extent (group of cached blocks) of a finished request.
    + _fields("left_from", "i8")
    + _fields("base_s prefill_token_s prefill_pair_s context_token_s sequence_s", "f8")
    + _fields("prefill_step_s", "f8")
    + _fields("draft_token_s read_s template_s prompt_token_s running_s first_byte_s", "f8")
    + _fields("first_byte_sequence_s flush_s flush_sequence_s front_pace", "f8"),
    align=True,
)
"""The scalars of `ServerModel`, `EngineConfig`, `StepModel` and `FrontEndModel`."""

JOB: Final = np.dtype(
    # Fields that a step reads and writes are adjacent in memory.
    # `skipped`: whether the request waits for an adapter slot.
    _fields("decoding running skipped", "?")
    + _fields("computed made output chunk target", "i8")
    + _fields("gap_s", "f8")
    # `spared`: prompt tokens that count as cached. `segments`, `segments_end`: the range of the
    # request's segments (the parts of its shared prefix) in the array of all segments.
    + _fields("prompt spared priority segments segments_end", "i8")
    # `adapter`: the number of the request's LoRA adapter, or −1.
    + _fields("adapter", "i8")
    + _fields("received_s frontend_s held_s acceptance think_s", "f8")
    # `follower`: the first request that waits for this request's response. `next_follower`: the
    # next request that waits for the same response as this request. −1: none.
    + _fields("follower next_follower", "i8")
    + _fields("engine preemptions cached", "i8")
    + _fields("handed_s queued_s scheduled_s first_s last_s first_byte_s last_byte_s", "f8")
    # `reserved`: blocks that the current step needs and that are not taken yet. `fills`,
    # `fills_end`: the range of the segments to which the next blocks belong. `fills` is −1 if the
    # next blocks belong to no segment.
    + _fields("reserved shared own fills fills_end", "i8")
    # The next and the previous request in one of two lists: the requests that the engine has not
    # accepted yet, or the queue.
    + _fields("next previous", "i8")
    # The front end's work for the request: `work_at_s` and `work_end_s` are the arrival and the end
    # of the work. `work_before`: the request whose work the front end does directly before this
    # work.
    + _fields("work_at_s work_end_s", "f8")
    + _fields("work_before", "i8"),
    align=True,
)
"""A request and its state."""

SEGMENT: Final = np.dtype(_fields("key blocks", "i8"), align=True)
"""A segment of a request's shared prefix, with at least one block. The keys are the numbers from 0
to `key_count` − 1."""

EXTENT: Final = np.dtype(
    # `newer` and `older`: links in the replica's list of idle extents.
    _fields("resident holders offset newer older", "i8") + _fields("being_filled idle", "?"),
    align=True,
)
"""An extent: cached blocks of one segment or of one finished request (`replay.kv_cache`). The
extent of a segment has the index `replica.first_extent + key`. The extent of finished request n has
the index `left_from + n`."""

ENGINE: Final = np.dtype(
    _fields("now_s start_s end_s decided_s pace busy_s seats_s kv_s tokens_s", "f8")
    + _fields("in_step", "?")
    # `blocked_by`: the limit that blocks the queue (SEATS, KV or TOKENS), or −1. `last_work`: the
    # request of the front end's latest work, or −1.
    + _fields("blocked_by sequences running decodes context waiting outstanding last_work", "i8")
    # `adapters`: the number of different adapters of the running requests.
    + _fields("just_ended adapters", "i8")
    + _fields("first_extent free blank idle_oldest idle_newest", "i8")
    # Indices into `EVENT` arrays.
    + _fields("next_stall stalls_end next_pace paces_end", "i8")
    + _fields("steps preemptions looked_up found", "i8"),
    align=True,
)
"""A replica. `decodes`: number of decoding requests. `context`: sum of their computed tokens."""

EVENT: Final = np.dtype(_fields("at_s value", "f8"), align=True)
"""A stall or a change of pace. For a stall, `value` is its duration. The value is negative if the
whole duration is added to the next step (`Stall.in_full`). For a change of pace, `value` is the
factor."""


def _compiled(function: _Function) -> _Function:
    """Decorate a function: numba compiles it at its first call, and stores the code on disk.

    The code is stored in this file's folder. If this folder is read-only, the code is stored in the
    user's cache folder (`NUMBA_CACHE_DIR` sets another folder). Several threads can replay at the
    same time.
    """
    compile_: Any = njit(cache=True, nogil=True)
    try:
        found: _Function = compile_(function)
    except RuntimeError:
        compile_ = njit(nogil=True)
        found = compile_(function)
    return found


@_compiled
def _blocks_for(options: Record, tokens: int) -> int:
    return int((tokens + options.block_size - 1) // options.block_size)


@_compiled
def _append_idle(engine: Record, extents: Records, node: int) -> None:
    extent = extents[node]
    extent.older, extent.newer = engine.idle_newest, -1
    extent.idle = True
    if engine.idle_newest >= 0:
        extents[engine.idle_newest].newer = node
    else:
        engine.idle_oldest = node
    engine.idle_newest = node


@_compiled
def _remove_idle(engine: Record, extents: Records, node: int) -> None:
    extent = extents[node]
    if not extent.idle:
        return
    extent.idle = False
    if extent.older >= 0:
        extents[extent.older].newer = extent.newer
    else:
        engine.idle_oldest = extent.newer
    if extent.newer >= 0:
        extents[extent.newer].older = extent.older
    else:
        engine.idle_newest = extent.older


@_compiled
def _take(engine: Record, extents: Records, count: int) -> None:
    """Do the same as `KvCache.take`."""
    engine.free -= count
    engine.blank -= count
    while engine.blank < 0:
        oldest = engine.idle_oldest
        evicted = min(extents[oldest].resident, -engine.blank)
        extents[oldest].resident -= evicted
        engine.blank += evicted
        if extents[oldest].resident == 0:
            _remove_idle(engine, extents, oldest)


@_compiled
def _hits(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    n: int,
    limit: int,
) -> int:
    """Do the same as `KvCache.hits`."""
    if not options.reuse:
        return 0
    found = 0
    for place in range(jobs[n].segments, jobs[n].segments_end):
        blocks = segments[place].blocks
        resident = extents[engine.first_extent + segments[place].key].resident
        here = min(resident, blocks, limit - found)
        found += here
        if here < blocks:
            return int(found)
    left = extents[options.left_from + n]
    if left.resident > 0 and left.offset == found:
        found = min(found + left.resident, limit)
    return int(found)


@_compiled
def _fill(
    engine: Record, jobs: Records, segments: Records, extents: Records, n: int, blocks: int
) -> int:
    """Do the same as `KvCache._fill`."""
    job = jobs[n]
    while job.fills >= 0 and blocks > 0:
        of_segment = segments[job.fills].blocks
        extent = extents[engine.first_extent + segments[job.fills].key]
        filled = min(blocks, of_segment - extent.resident)
        extent.resident += filled
        job.shared += filled
        blocks -= filled
        if extent.resident == of_segment:
            extent.being_filled = False
            job.fills = job.fills + 1 if job.fills + 1 < job.fills_end else -1
    return blocks


@_compiled
def _grow(
    engine: Record, jobs: Records, segments: Records, extents: Records, n: int, total: int
) -> None:
    """Do the same as `KvCache.grow`. There must be enough blocks."""
    job = jobs[n]
    wanted = total - job.shared - job.own
    job.own += _fill(engine, jobs, segments, extents, n, wanted)
    _take(engine, extents, wanted)


@_compiled
def _admit_blocks(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    n: int,
    hits: int,
    total: int,
    in_all: int,
) -> bool:
    """Do the same as `KvCache.admit`."""
    job = jobs[n]
    prefix, woken = 0, 0
    for place in range(job.segments, job.segments_end):
        prefix += segments[place].blocks
        extent = extents[engine.first_extent + segments[place].key]
        if extent.holders == 0:
            woken += extent.resident
    shared_hits = min(hits, prefix)
    own_hits = hits - shared_hits
    if woken + own_hits + max(total, in_all) - hits > engine.free:
        return False
    left = extents[options.left_from + n]
    if left.resident > 0:
        _remove_idle(engine, extents, options.left_from + n)
        engine.blank += left.resident - own_hits
        engine.free -= own_hits
        left.resident = 0
    job.shared, job.own, job.fills = shared_hits, own_hits, -1
    if options.reuse:
        contiguous, end = True, 0
        for place in range(job.segments, job.segments_end):
            node = engine.first_extent + segments[place].key
            extent = extents[node]
            if extent.holders == 0:
                _remove_idle(engine, extents, node)
                engine.free -= extent.resident
            extent.holders += 1
            if extent.resident < segments[place].blocks:
                reached = job.fills >= 0 or job.shared == end + extent.resident
                if contiguous and reached and not extent.being_filled:
                    extent.being_filled = True
                    if job.fills < 0:
                        job.fills = place
                    job.fills_end = place + 1
                else:
                    contiguous = False
            elif job.fills >= 0:
                contiguous = False
            end += segments[place].blocks
    _grow(engine, jobs, segments, extents, n, total)
    return True


@_compiled
def _release(
    options: Record, engine: Record, jobs: Records, segments: Records, extents: Records, n: int
) -> None:
    """Do the same as `KvCache.release` for all blocks of a request that leaves the batch."""
    job = jobs[n]
    own = max(_blocks_for(options, job.computed), job.shared + job.own) - job.shared
    own = _fill(engine, jobs, segments, extents, n, own)
    engine.free += own
    if options.reuse:
        if own > 0:
            left = extents[options.left_from + n]
            left.resident, left.offset = own, job.shared
            _append_idle(engine, extents, options.left_from + n)
        if job.fills >= 0:
            for place in range(job.fills, job.fills_end):
                extents[engine.first_extent + segments[place].key].being_filled = False
        for place in range(job.segments_end - 1, job.segments - 1, -1):
            node = engine.first_extent + segments[place].key
            extent = extents[node]
            extent.holders -= 1
            if extent.holders == 0:
                engine.free += extent.resident
                if extent.resident > 0:
                    _append_idle(engine, extents, node)
    else:
        engine.blank += own
    job.shared = job.own = 0
    job.fills = -1


@_compiled
def _join(jobs: Records, ends: IntArray, which: int, behind: int, ahead: int) -> None:
    """Make two requests neighbours in a list. −1 stands for the end of the list."""
    if behind < 0:
        ends[which] = ahead
    else:
        jobs[behind].next = ahead
    if ahead < 0:
        ends[which + 1] = behind
    else:
        jobs[ahead].previous = behind


@_compiled
def _link(jobs: Records, ends: IntArray, which: int, n: int, behind: int) -> None:
    """Insert a request into a list, after the request `behind`, or at the head if `behind` is
    −1."""
    ahead = ends[which] if behind < 0 else jobs[behind].next
    _join(jobs, ends, which, behind, n)
    _join(jobs, ends, which, n, ahead)


@_compiled
def _unlink(jobs: Records, ends: IntArray, which: int, n: int) -> None:
    """Remove a request from a list."""
    _join(jobs, ends, which, jobs[n].previous, jobs[n].next)


@_compiled
def _has_room(options: Record, engine: Record, adapters: IntArray, adapter: int) -> bool:
    """Do the same as `LoraSlots.has_room`."""
    return bool(adapter < 0 or adapters[adapter] > 0 or engine.adapters < options.adapters)


@_compiled
def _join_adapter(engine: Record, adapters: IntArray, adapter: int) -> None:
    if adapter >= 0:
        if adapters[adapter] == 0:
            engine.adapters += 1
        adapters[adapter] += 1


@_compiled
def _leave_adapter(engine: Record, adapters: IntArray, adapter: int) -> None:
    if adapter >= 0:
        adapters[adapter] -= 1
        if adapters[adapter] == 0:
            engine.adapters -= 1


@_compiled
def _before(jobs: Records, n: int, other: int) -> bool:
    one, two = jobs[n], jobs[other]
    if one.priority != two.priority:
        return bool(one.priority < two.priority)
    if one.handed_s != two.handed_s:
        return bool(one.handed_s < two.handed_s)
    return n < other


@_compiled
def _wait(
    options: Record, engine: Record, jobs: Records, ends: IntArray, n: int, again: bool
) -> None:
    """Insert a request into the queue. Without priorities, a preempted request goes before all
    others except the skipped requests at the head, which wait for an adapter slot."""
    behind = ends[_WAITING + 1]
    if options.by_priority:
        while behind >= 0 and _before(jobs, n, behind):
            behind = jobs[behind].previous
    elif again:
        behind = -1
        ahead = ends[_WAITING]
        while ahead >= 0 and jobs[ahead].skipped:
            behind, ahead = ahead, jobs[ahead].next
    _link(jobs, ends, _WAITING, n, behind)
    engine.waiting += 1


@_compiled
def _needs(options: Record, job: Record, chunk: int) -> int:
    """Do the same as `ReplayEngine._needs`."""
    if job.decoding:
        if options.drafts == 0:
            return 1 if job.computed % options.block_size == 0 else 0
        covered = min(job.computed + 1 + options.drafts, options.max_model_len)
    else:
        covered = job.computed + chunk
    return int(max(0, _blocks_for(options, covered) - job.shared - job.own))


@_compiled
def _preempt(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    batch: IntArray,
    ends: IntArray,
    adapters: IntArray,
    n: int,
) -> None:
    """Do the same as `ReplayEngine._preempt`."""
    job = jobs[n]
    _leave_adapter(engine, adapters, job.adapter)
    if job.decoding:
        job.decoding = False
        job.last_s = engine.now_s
        engine.decodes -= 1
        engine.context -= job.computed
    kept = 0
    for place in range(engine.running):
        if batch[place] != n:
            batch[kept] = batch[place]
            kept += 1
    engine.running = kept
    job.running = False
    _release(options, engine, jobs, segments, extents, n)
    job.preemptions += 1
    engine.preemptions += 1
    job.target = job.prompt + job.made
    job.computed = job.chunk = 0
    _wait(options, engine, jobs, ends, n, True)


@_compiled
def _make_room(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    batch: IntArray,
    ends: IntArray,
    adapters: IntArray,
    budget: int,
    limit: int,
) -> int:
    """Do the same as `ReplayEngine._make_room`. Return the remaining token budget."""
    order = batch[: engine.running].copy()
    for n in order:
        jobs[n].chunk = jobs[n].reserved = 0
    reserved = 0
    for n in order:
        job = jobs[n]
        if not job.running:
            continue
        chunk = 0
        if not job.decoding:
            chunk = min(job.target - job.computed, budget, limit)
            if chunk <= 0:
                continue
        needs = _needs(options, job, chunk)
        while job.running and reserved + needs > engine.free:
            victim = batch[engine.running - 1]
            if options.by_priority:
                for place in range(engine.running):
                    if _before(jobs, victim, batch[place]):
                        victim = batch[place]
            if jobs[victim].decoding:
                budget += 1 + options.drafts
            budget += jobs[victim].chunk
            reserved -= jobs[victim].reserved
            _preempt(options, engine, jobs, segments, extents, batch, ends, adapters, victim)
        if job.running:
            job.chunk, job.reserved = chunk, needs
            reserved += needs
            budget -= chunk
    return budget


@_compiled
def _serve_running(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    batch: IntArray,
    ends: IntArray,
    adapters: IntArray,
    limit: int,
) -> int:
    """Do the same as `ReplayEngine._serve_running`. Return the remaining token budget."""
    due = 0
    for place in range(engine.running):
        if jobs[batch[place]].decoding:
            due += _needs(options, jobs[batch[place]], 0)
    budget = rest = options.step_tokens - engine.decodes * (1 + options.drafts)
    needed = due
    if engine.decodes < engine.running:
        for place in range(engine.running):
            job = jobs[batch[place]]
            if not job.decoding:
                job.chunk = max(0, min(job.target - job.computed, rest, limit))
                if job.chunk > 0:
                    needed += _needs(options, job, job.chunk)
                rest -= job.chunk
    if needed > engine.free:
        rest = _make_room(
            options, engine, jobs, segments, extents, batch, ends, adapters, budget, limit
        )
        due = 0
        for place in range(engine.running):
            if jobs[batch[place]].decoding:
                due += _needs(options, jobs[batch[place]], 0)
    if options.drafts == 0:
        _take(engine, extents, due)
    if options.drafts > 0 or engine.decodes < engine.running:
        for place in range(engine.running):
            n = batch[place]
            job = jobs[n]
            if not job.decoding:
                if job.chunk > 0:
                    total = _blocks_for(options, job.computed + job.chunk)
                    _grow(engine, jobs, segments, extents, n, total)
            elif options.drafts > 0:
                covered = min(job.computed + 1 + options.drafts, options.max_model_len)
                _grow(engine, jobs, segments, extents, n, _blocks_for(options, covered))
    return int(rest)


@_compiled
def _admit_waiting(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    batch: IntArray,
    ends: IntArray,
    adapters: IntArray,
    rest: int,
    limit: int,
    preempted: bool,
    late_seats: int,
) -> int:
    """Do the same as `ReplayEngine._admit_waiting`. Return the limit that blocks the queue, or
    −1."""
    following = ends[_WAITING]
    while following >= 0:
        n = following
        following = jobs[n].next
        if jobs[n].skipped:
            continue
        if preempted:
            return KV
        if engine.running + late_seats >= options.seats:
            return SEATS
        if rest <= 0:
            return TOKENS
        job = jobs[n]
        if not _has_room(options, engine, adapters, job.adapter):
            job.skipped = True
            continue
        most = (job.target - 1) // options.block_size
        hits = _hits(options, engine, jobs, segments, extents, n, most)
        cached = spared = hits * options.block_size
        new = np.isnan(job.scheduled_s)
        if new and job.spared > cached:
            spared = min(job.spared, job.target - 1)
        chunk = min(job.target - spared, rest, limit)
        total = _blocks_for(options, spared + chunk)
        whole = _blocks_for(options, job.target) if options.reserve_whole else 0
        if not _admit_blocks(options, engine, jobs, segments, extents, n, hits, total, whole):
            return KV
        _unlink(jobs, ends, _WAITING, n)
        engine.waiting -= 1
        _join_adapter(engine, adapters, job.adapter)
        batch[engine.running] = n
        engine.running += 1
        job.running = True
        job.computed, job.chunk = spared, chunk
        rest -= chunk
        if new:
            job.scheduled_s = engine.decided_s
            job.cached = spared
            engine.looked_up += job.target
            engine.found += cached
    return -1


@_compiled
def _begin_step(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    batch: IntArray,
    ends: IntArray,
    adapters: IntArray,
    noise: FloatArray,
    stalls: Records,
    paces: Records,
    start: float,
) -> None:
    """Do the same as `ReplayEngine._begin_step`."""
    engine.now_s = start
    ahead = options.ahead and engine.running > 0
    engine.decided_s = engine.start_s if ahead else start
    late_seats = engine.just_ended if ahead else 0
    while ends[_COMING] >= 0 and jobs[ends[_COMING]].handed_s <= engine.decided_s:
        n = ends[_COMING]
        _unlink(jobs, ends, _COMING, n)
        jobs[n].queued_s = engine.decided_s
        _wait(options, engine, jobs, ends, n, False)
    n = ends[_WAITING] if options.adapters > 0 else -1
    while n >= 0:
        if jobs[n].skipped and _has_room(options, engine, adapters, jobs[n].adapter):
            jobs[n].skipped = False
        n = jobs[n].next
    limit = options.long_limit
    if limit == 0 or engine.running + engine.waiting <= 1:
        limit = _NO_LIMIT
    preemptions = engine.preemptions
    rest = _serve_running(options, engine, jobs, segments, extents, batch, ends, adapters, limit)
    preempted = engine.preemptions > preemptions
    engine.blocked_by = _admit_waiting(
        options,
        engine,
        jobs,
        segments,
        extents,
        batch,
        ends,
        adapters,
        rest,
        limit,
        preempted,
        late_seats,
    )

    while engine.next_pace < engine.paces_end and paces[engine.next_pace].at_s <= start:
        engine.pace = paces[engine.next_pace].value
        engine.next_pace += 1
    scale = noise[engine.steps % len(noise)] * engine.pace
    prefill_s, chunks = 0.0, 0
    if engine.decodes < engine.running:
        for place in range(engine.running):
            job = jobs[batch[place]]
            if job.chunk > 0:
                pairs = job.chunk * (job.computed + job.chunk / 2)
                own_s = options.prefill_token_s * job.chunk + options.prefill_pair_s * pairs
                prefill_s += own_s * scale
                chunks += 1
        if chunks > 0:
            prefill_s += options.prefill_step_s * scale
    decodes = engine.decodes
    context_s = options.context_token_s * engine.context
    if options.drafts == 0:
        plain_s = options.base_s + options.sequence_s * decodes + context_s
    else:
        work_s = options.drafts * options.draft_token_s if decodes > 0 else 0.0
        verify_s = options.drafts * (options.prefill_token_s + options.sequence_s)
        work_s += decodes * (options.sequence_s + verify_s)
        plain_s = options.base_s + context_s + work_s
    stall_s = whole_s = 0.0
    while engine.next_stall < engine.stalls_end and stalls[engine.next_stall].at_s <= start:
        stall = stalls[engine.next_stall]
        if stall.value < 0:
            whole_s -= stall.value
        else:
            stall_s = max(stall_s, stall.at_s + stall.value - start)
        engine.next_stall += 1
    stall_s += whole_s
    engine.in_step = True
    engine.start_s = start
    engine.end_s = start + plain_s * scale + prefill_s + stall_s
    engine.sequences = decodes + chunks


@_compiled
def _written_s(options: Record, engine: Record, jobs: Records, at: float, work_s: float) -> float:
    """Do the same as `ReplayFrontEnd.write`."""
    work = engine.last_work
    while work >= 0 and jobs[work].work_at_s > at:
        work = jobs[work].work_before
    free = max(at, jobs[work].work_end_s) if work >= 0 else at
    return float(free + work_s * options.front_pace)


@_compiled
def _decoded(options: Record, job: Record, n: int, draws: FloatArray) -> int:
    if options.drafts == 0:
        return 1
    made = 1
    while made <= options.drafts:
        draw = n * _DRAW_OF_REQUEST + job.made * _DRAW_OF_TOKEN + made - 1
        if draws[draw % len(draws)] >= job.acceptance:
            break
        made += 1
    return int(min(made, job.output - job.made))


@_compiled
def _end_step(
    options: Record,
    engine: Record,
    jobs: Records,
    segments: Records,
    extents: Records,
    batch: IntArray,
    adapters: IntArray,
    draws: FloatArray,
    ended: IntArray,
) -> int:
    """Do the same as `ReplayEngine._end_step`. Write the ended requests to `ended`; return the
    number of ended requests."""
    now = engine.end_s
    took_s = now - engine.start_s
    engine.in_step = False
    engine.now_s = now
    engine.steps += 1
    engine.busy_s += took_s
    if engine.blocked_by == SEATS:
        engine.seats_s += took_s
    elif engine.blocked_by == KV:
        engine.kv_s += took_s
    elif engine.blocked_by == TOKENS:
        engine.tokens_s += took_s
    done = 0
    for place in range(engine.running):
        n = batch[place]
        job = jobs[n]
        if job.decoding:
            made = _decoded(options, job, n, draws)
            job.made += made
            job.computed += made
            engine.context += made
            if not took_s <= job.gap_s:
                job.gap_s = took_s
        elif job.chunk > 0:
            job.computed += job.chunk
            job.chunk = 0
            if job.computed == job.target:
                job.made += 1
                job.decoding = True
                engine.decodes += 1
                engine.context += job.computed
                if not np.isnan(job.last_s) and not now - job.last_s <= job.gap_s:
                    job.gap_s = now - job.last_s
                if np.isnan(job.first_s):
                    job.first_s = now
                    work_s = options.first_byte_s + options.first_byte_sequence_s * engine.sequences
                    job.first_byte_s = _written_s(options, engine, jobs, now, work_s)
        if job.decoding and job.made == job.output:
            ended[done] = n
            done += 1
    engine.just_ended = done
    if done == 0:
        return 0
    for place in range(done):
        n = ended[place]
        job = jobs[n]
        job.decoding = job.running = False
        _leave_adapter(engine, adapters, job.adapter)
        engine.decodes -= 1
        engine.context -= job.computed
        job.last_s = now
        work_s = options.flush_s + options.flush_sequence_s * engine.sequences
        job.last_byte_s = _written_s(options, engine, jobs, now, work_s)
        job.first_byte_s = min(job.first_byte_s, job.last_byte_s)
        _release(options, engine, jobs, segments, extents, n)
    kept = 0
    for place in range(engine.running):
        if jobs[batch[place]].running:
            batch[kept] = batch[place]
            kept += 1
    engine.running = kept
    engine.outstanding -= done
    return done


@_compiled
def _choose(
    options: Record,
    engines: Records,
    jobs: Records,
    segments: Records,
    extents: Records,
    n: int,
    turn: int,
) -> int:
    count = len(engines)
    freest = turn % count
    if options.router == ROUND_ROBIN:
        return freest
    for place in range(1, count):
        r = (turn + place) % count
        if engines[r].outstanding < engines[freest].outstanding:
            freest = r
    if options.router == MIN_OUTSTANDING:
        return freest
    limit = (jobs[n].prompt - 1) // options.block_size
    longest, most = freest, -1
    for place in range(count):
        r = (turn + place) % count
        cached = _hits(options, engines[r], jobs, segments, extents, n, limit)
        if cached > most or (
            cached == most and engines[r].outstanding < engines[longest].outstanding
        ):
            longest, most = r, cached
    if engines[longest].outstanding <= engines[freest].outstanding + options.slack:
        return longest
    return freest


@_compiled
def _receive(
    options: Record, engine: Record, jobs: Records, ends: IntArray, n: int, r: int
) -> bool:
    """Pass a request to a replica's front end. Return False if the request is rejected."""
    job = jobs[n]
    too_long = job.prompt + job.output > options.max_model_len
    if too_long or engine.outstanding >= options.queue_places:
        return False
    if np.isnan(job.frontend_s):
        work_s = (
            options.template_s
            + options.prompt_token_s * job.prompt
            + options.running_s * engine.running
        )
        job.work_at_s = begun = job.received_s + options.read_s
        job.work_before = engine.last_work
        if engine.last_work >= 0:
            begun = max(begun, jobs[engine.last_work].work_end_s)
        job.work_end_s = job.handed_s = begun + work_s * options.front_pace
        engine.last_work = n
    else:
        job.handed_s = job.received_s + job.frontend_s
    job.handed_s += job.held_s
    job.engine = r
    job.target = job.prompt
    engine.outstanding += 1
    behind = ends[_COMING + 1]
    while behind >= 0 and jobs[behind].handed_s > job.handed_s:
        behind = jobs[behind].previous
    _link(jobs, ends, _COMING, n, behind)
    return True


@_compiled
def _push(times: FloatArray, rows: IntArray, count: int, at: float, row: int) -> None:
    """Add an entry to a binary heap of (time, row) with `count` entries."""
    place = count
    while place > 0:
        parent = (place - 1) // 2
        if times[parent] < at or (times[parent] == at and rows[parent] < row):
            break
        times[place], rows[place] = times[parent], rows[parent]
        place = parent
    times[place], rows[place] = at, row


@_compiled
def _drop_first(times: FloatArray, rows: IntArray, count: int) -> None:
    """Remove the first entry of a binary heap of (time, row) with `count` entries."""
    at, row = times[count - 1], rows[count - 1]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= count - 1:
            break
        other = child + 1
        if other < count - 1 and (
            times[other] < times[child]
            or (times[other] == times[child] and rows[other] < rows[child])
        ):
            child = other
        if at < times[child] or (at == times[child] and row < rows[child]):
            break
        times[place], rows[place] = times[child], rows[child]
        place = child
    times[place], rows[place] = at, row


@_compiled
def run(
    all_options: Records,
    engines: Records,
    jobs: Records,
    segments: Records,
    extents: Records,
    batches: IntArray,
    lists: IntArray,
    adapters: IntArray,
    noise: FloatArray,
    draws: FloatArray,
    stalls: Records,
    paces: Records,
    free: IntArray,
) -> None:
    """Replay the requests. Store the results in `jobs` and `engines`.

    Args:
        all_options: (1,) OPTIONS
        engines: (r,) ENGINE, one per replica
        jobs: (n,) JOB, one per request
        segments: (m,) SEGMENT, the segments of all requests
        extents: (r · key_count + n,) EXTENT, one per replica and key, then one per request
        batches: (r, seats) the running requests of each replica, in order of admission; `seats` is
            the maximum batch size
        lists: (r, 4) head and tail (−1 if empty) of two lists: requests that are not accepted yet,
            and the queue
        adapters: (r, a) the number of running requests of each replica with each adapter
        noise: (r, k) k noise factors for the steps of each replica, used cyclically
        draws: (r, d) d random numbers in [0, 1) for each replica, which decide whether drafted
            tokens are accepted
        stalls: (s,) EVENT, the stalls of all replicas
        paces: (p,) EVENT, the changes of pace of all replicas
        free: (f,) requests that wait for no other request, in order of receipt
    """
    options = all_options[0]
    times, rows = np.empty(len(jobs)), np.empty(len(jobs), np.int64)
    ended = np.empty(max(options.seats, 1), np.int64)
    sent, turn, pending = 0, 0, 0
    while True:
        # Events at the same time are processed in this order: ends of steps, arrivals of requests,
        # starts of steps.
        end_s, ends_at, start_s, starts_at = _NEVER, -1, _NEVER, -1
        for r in range(len(engines)):
            engine = engines[r]
            if engine.in_step:
                if engine.end_s < end_s:
                    end_s, ends_at = engine.end_s, r
            elif engine.running > 0 or engine.waiting > 0:
                if engine.now_s < start_s:
                    start_s, starts_at = engine.now_s, r
            elif lists[r, _COMING] >= 0:
                at = max(engine.now_s, jobs[lists[r, _COMING]].handed_s)
                if at < start_s:
                    start_s, starts_at = at, r
        arrival_s, row = _NEVER, -1
        if sent < len(free):
            row = free[sent]
            arrival_s = jobs[row].received_s
        from_heap = pending > 0 and (
            times[0] < arrival_s or (times[0] == arrival_s and rows[0] < row)
        )
        if from_heap:
            arrival_s, row = times[0], rows[0]
        count = 0
        if ends_at >= 0 and end_s <= arrival_s and end_s <= start_s:
            r = ends_at
            count = _end_step(
                options,
                engines[r],
                jobs,
                segments,
                extents,
                batches[r],
                adapters[r],
                draws[r],
                ended,
            )
        elif row >= 0 and arrival_s <= start_s:
            if from_heap:
                _drop_first(times, rows, pending)
                pending -= 1
            else:
                sent += 1
            jobs[row].received_s = arrival_s
            r = _choose(options, engines, jobs, segments, extents, row, turn)
            turn += 1
            if not _receive(options, engines[r], jobs, lists[r], row, r):
                jobs[row].last_byte_s = arrival_s
                ended[0], count = row, 1
        elif starts_at >= 0:
            r = starts_at
            _begin_step(
                options,
                engines[r],
                jobs,
                segments,
                extents,
                batches[r],
                lists[r],
                adapters[r],
                noise[r],
                stalls,
                paces,
                start_s,
            )
        else:
            return
        for place in range(count):
            follower = jobs[ended[place]].follower
            while follower >= 0:
                at = jobs[ended[place]].last_byte_s + jobs[follower].think_s
                _push(times, rows, pending, at, follower)
                pending += 1
                follower = jobs[follower].next_follower
