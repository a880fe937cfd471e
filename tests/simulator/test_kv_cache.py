from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simulator.kv_cache import KvCache, Lease, blocks_for

BLOCKS = 40
PREFIXES = {"short": 2, "long": 7}


class Jobs(RuleBasedStateMachine):
    """Jobs come, grow, leave and come back, in any order."""

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
        """A job comes for the first time."""
        self.count += 1
        self._admit(Lease(self.count, prefix, PREFIXES.get(prefix or "", 0)), wanted)

    @precondition(lambda self: self.preempted)
    @rule(wanted=st.integers(1, 20))
    def come_back(self, wanted: int) -> None:
        """A preempted one, or one that found no room, tries again."""
        self._admit(self.preempted.pop(0), wanted)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.integers(0, 9))
    def grow(self, data: st.DataObject, more: int) -> None:
        """A job computes more."""
        at = data.draw(st.integers(0, len(self.held) - 1))
        lease, total = self.held[at]
        if self.kv.grow(lease, total + more):
            self.held[at] = lease, total + more

    @precondition(lambda self: self.held and self.kv.free)
    @rule()
    def decode_into_a_new_block(self) -> None:
        """A block for a decode, settled later."""
        lease, total = self.held[-1]
        if not lease.fills:
            self.kv.take(1)
            lease.own += 1
            self.held[-1] = lease, total + 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), back=st.booleans())
    def leave(self, data: st.DataObject, back: bool) -> None:
        """A job ends, or is preempted."""
        lease, total = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.kv.release(lease, total)
        if back:
            self.preempted.append(lease)

    @invariant()
    def held_idle_and_blank_are_all_there_is(self) -> None:
        """Conservation of blocks."""
        own = sum(lease.own for lease, _ in self.held)
        held = own + self.kv.held_prefix_blocks()
        assert min(self.kv.blank, self.kv.free, own) >= 0
        assert held + self.kv.idle_blocks() + self.kv.blank == BLOCKS
        assert self.kv.free == self.kv.idle_blocks() + self.kv.blank

    @invariant()
    def a_lease_covers_what_was_asked_for(self) -> None:
        """Nothing is held that was not asked for."""
        assert all(lease.shared + lease.own == total for lease, total in self.held)


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def _run_through(kv: KvCache, lease: Lease, total: int) -> int:
    hits = kv.hits(lease, total - 1)
    assert kv.admit(lease, hits, total)
    kv.release(lease, total)
    return hits


def test_a_shared_prefix_is_found_by_the_next_request() -> None:
    """The first computes it, the second finds all of it."""
    kv = KvCache(100)
    assert _run_through(kv, Lease(1, "system", 8), 12) == 0
    assert _run_through(kv, Lease(2, "system", 8), 12) == 8


def test_what_was_used_last_is_evicted_last() -> None:
    """Least recently used first, and each extent from its end."""
    kv = KvCache(20)
    _run_through(kv, Lease(1, "old", 8), 8)
    _run_through(kv, Lease(2, "new", 8), 8)
    _run_through(kv, Lease(3), 10)
    assert kv.hits(Lease(4, "old", 8), 99) == 2
    assert kv.hits(Lease(5, "new", 8), 99) == 8


def test_a_preempted_request_finds_its_own_blocks_again() -> None:
    """What it had computed stays cached until someone needs the room."""
    kv = KvCache(30)
    lease = Lease(1, "system", 4)
    assert kv.admit(lease, 0, 10)
    kv.release(lease, 10)
    assert kv.hits(lease, 9) == 9
    assert kv.admit(lease, 9, 12)
    assert kv.free == 30 - 12


def test_without_reuse_nothing_is_found() -> None:
    """enable_prefix_caching off: every prompt is computed whole."""
    kv = KvCache(100, reuse=False)
    assert _run_through(kv, Lease(1, "system", 8), 12) == 0
    assert _run_through(kv, Lease(2, "system", 8), 12) == 0
    assert kv.blank == 100


def test_a_block_begun_is_a_block() -> None:
    """Sixteen tokens fill one, a seventeenth begins the next."""
    assert [blocks_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_lost_blocks_are_nobody_s_until_they_are_found() -> None:
    """They are taken as they become free, count as used, and come back whole."""
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
