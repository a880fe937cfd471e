from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replay.kv_cache import KvCache, Lease, blocks_for

BLOCKS = 40
PREFIXES = {"short": 2, "long": 7}


class Jobs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kv = KvCache(BLOCKS)
        self.held: list[tuple[Lease, int]] = []
        self.preempted: list[Lease] = []
        self.count = 0

    def _admit(self, lease: Lease, wanted: int) -> None:
        limit = lease.prefix_blocks + wanted - 1
        hits = self.kv.hits(lease, limit)
        assert 0 <= hits <= limit
        total = max(hits + 1, min(wanted, limit + 1))
        free = self.kv.free
        if self.kv.admit(lease, hits, total):
            self.held.append((lease, total))
        else:
            assert self.kv.free == free
            self.preempted.append(lease)

    @rule(prefix=st.sampled_from([None, *PREFIXES]), wanted=st.integers(1, 20))
    def arrive(self, prefix: str | None, wanted: int) -> None:
        self.count += 1
        self._admit(Lease(self.count, ((prefix, PREFIXES[prefix]),) if prefix else ()), wanted)

    @precondition(lambda self: self.preempted)
    @rule(wanted=st.integers(1, 20))
    def come_back(self, wanted: int) -> None:
        """Let a job that was preempted, or that found no room, try again."""
        self._admit(self.preempted.pop(0), wanted)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.integers(0, 9))
    def grow(self, data: st.DataObject, more: int) -> None:
        at = data.draw(st.integers(0, len(self.held) - 1))
        lease, total = self.held[at]
        if self.kv.grow(lease, total + more):
            self.held[at] = lease, total + more

    @precondition(lambda self: self.held and self.kv.free)
    @rule()
    def decode_into_a_new_block(self) -> None:
        lease, total = self.held[-1]
        if not lease.fills:
            self.kv.take(1)
            lease.own += 1
            self.held[-1] = lease, total + 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), back=st.booleans())
    def leave(self, data: st.DataObject, back: bool) -> None:
        lease, total = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.kv.release(lease, total)
        if back:
            self.preempted.append(lease)

    @invariant()
    def held_idle_and_blank_are_all_there_is(self) -> None:
        own = sum(lease.own for lease, _ in self.held)
        held = own + self.kv.held_prefix_blocks()
        assert min(self.kv.blank, self.kv.free, own) >= 0
        assert held + self.kv.idle_blocks() + self.kv.blank == BLOCKS
        assert self.kv.free == self.kv.idle_blocks() + self.kv.blank

    @invariant()
    def a_lease_covers_what_was_asked_for(self) -> None:
        assert all(lease.shared + lease.own == total for lease, total in self.held)


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def _run_through(kv: KvCache, lease: Lease, total: int) -> int:
    hits = kv.hits(lease, total - 1)
    assert kv.admit(lease, hits, total)
    kv.release(lease, total)
    return hits


def test_a_shared_prefix_is_found_by_the_next_request() -> None:
    kv = KvCache(100)
    assert _run_through(kv, Lease(1, (("system", 8),)), 12) == 0
    assert _run_through(kv, Lease(2, (("system", 8),)), 12) == 8


def test_the_next_turn_of_a_conversation_finds_the_answer() -> None:
    """The blocks of generated tokens become part of the segment when the request ends."""
    kv = KvCache(100)
    first = Lease(1, (("turn 1", 9),))
    assert kv.admit(first, 0, 6)
    kv.take(4)
    kv.release(first, 10)
    assert kv.hits(Lease(2, (("turn 1", 9), ("turn 2", 5))), 99) == 9
    assert kv.free == 100


def test_a_hit_that_stops_before_the_cached_end_fills_no_segment() -> None:
    """The blocks after the hit are already cached."""
    kv = KvCache(100)
    _run_through(kv, Lease(1, (("turn 1", 3),)), 3)
    _run_through(kv, Lease(2, (("turn 1", 6),)), 5)
    lease = Lease(3, (("turn 1", 6),))
    assert kv.hits(lease, 2) == 2
    assert kv.admit(lease, 2, 4)
    kv.release(lease, 4)
    assert kv.hits(Lease(4, (("turn 1", 6),)), 99) == 5
    assert kv.free == 100


def test_the_most_recently_used_block_is_evicted_last() -> None:
    kv = KvCache(20)
    _run_through(kv, Lease(1, (("old", 8),)), 8)
    _run_through(kv, Lease(2, (("new", 8),)), 8)
    _run_through(kv, Lease(3), 10)
    assert kv.hits(Lease(4, (("old", 8),)), 99) == 2
    assert kv.hits(Lease(5, (("new", 8),)), 99) == 8


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    kv = KvCache(30)
    lease = Lease(1, (("system", 4),))
    assert kv.admit(lease, 0, 10)
    kv.release(lease, 10)
    assert kv.hits(lease, 9) == 9
    assert kv.admit(lease, 9, 12)
    assert kv.free == 30 - 12


def test_without_reuse_there_are_no_hits() -> None:
    kv = KvCache(100, reuse=False)
    assert _run_through(kv, Lease(1, (("system", 8),)), 12) == 0
    assert _run_through(kv, Lease(2, (("system", 8),)), 12) == 0
    assert kv.blank == 100


def test_a_block_begun_is_a_block() -> None:
    assert [blocks_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_lost_blocks_in_use_are_pinned_when_they_are_freed() -> None:
    kv = KvCache(10)
    lease = Lease(1)
    assert kv.admit(lease, 0, 6)
    kv.pin(8)
    assert (kv.pinned, kv.free, kv.usage_ratio) == (4, 0, 1.0)
    kv.release(lease, 6)
    kv.pin(8)
    assert (kv.pinned, kv.free) == (8, 2)
    kv.pin(0)
    assert (kv.pinned, kv.free, kv.usage_ratio) == (0, 10, 0.0)
    assert kv.free == kv.idle_blocks() + kv.blank


TREE = ((("root", 2), ("left", 3)), (("root", 2), ("right", 4)))


def test_a_prefix_of_several_segments_is_found_as_far_as_it_is_shared() -> None:
    """The common root is found at once. A branch is found when it is used again."""
    kv = KvCache(100)
    assert _run_through(kv, Lease(1, TREE[0]), 9) == 0
    assert _run_through(kv, Lease(2, TREE[1]), 9) == 2
    assert _run_through(kv, Lease(3, TREE[0]), 9) == 5
    assert _run_through(kv, Lease(4, TREE[1]), 9) == 6


def test_a_branch_is_evicted_before_its_root() -> None:
    """Blocks after an evicted block cannot be found."""
    kv = KvCache(12)
    _run_through(kv, Lease(1, TREE[0]), 5)
    _run_through(kv, Lease(2), 9)
    assert kv.hits(Lease(3, TREE[0]), 99) == 3
    _run_through(kv, Lease(4), 2)
    assert kv.hits(Lease(5, TREE[0]), 99) == 1


def test_only_one_of_two_at_the_same_time_fills_a_segment() -> None:
    """The second request keeps its own blocks, also for later segments."""
    kv = KvCache(100)
    first, second = Lease(1, TREE[0]), Lease(2, TREE[1])
    assert kv.admit(first, 0, 1)
    assert kv.admit(second, 0, 6)
    assert (second.shared, second.own) == (0, 6)
    assert kv.grow(first, 9)
    assert (first.shared, first.own) == (5, 4)
    kv.release(second, 6)
    kv.release(first, 9)
    assert kv.hits(Lease(3, TREE[0]), 99) == 5
    assert kv.hits(Lease(4, TREE[1]), 99) == 2


def test_blocks_for_the_whole_prompt_can_be_required_at_admission() -> None:
    """The whole prompt must fit into the free blocks, but only the first blocks are taken."""
    kv = KvCache(10)
    assert not kv.admit(Lease(1), 0, 2, in_all=11)
    assert kv.admit(Lease(2), 0, 2, in_all=10)
    assert kv.free == 8
