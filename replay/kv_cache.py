"""Simulate a paged KV cache with prefix reuse.

Pure. Each block is held by a request, idle (cached and evictable) or blank (without cached tokens).
Blocks are counted, not numbered, so the time of every operation is independent of the prompt's
length. Blocks are grouped into extents: an extent contains the blocks of one shared prompt segment,
or the blocks that one finished job leaves in the cache. The cached blocks of an extent ("resident"
blocks) are always its first blocks. An extent has resident blocks only if all extents before it in
the prompt are complete.

The invariant is: held + idle + blank = blocks. The least recently used idle extent is evicted
first, beginning with its last block, as in vLLM. There is one difference from vLLM: if several jobs
compute the same segment at the same time, only the first job's blocks are cached. The other jobs'
blocks after that segment are not cached either.

Source: vLLM v1/core/kv_cache_manager.py and block_pool.py.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

BLOCK_TOKENS = 16
"""Tokens per block: vLLM's default."""


def blocks_for(tokens: int, block_tokens: int = BLOCK_TOKENS) -> int:
    """Return the number of blocks for this number of tokens."""
    return -(-tokens // block_tokens)


@dataclass(slots=True)
class _Extent:
    """Blocks of one shared prompt segment, or blocks that one finished job left in the cache."""

    resident: int
    """Number of the extent's blocks that are in the cache, counted from its first block."""
    holders: int = 0
    being_filled: bool = False
    offset: int = 0
    """For the blocks of a finished job: the number of shared prefix blocks that precede them."""


@dataclass(slots=True)
class Lease:
    """The blocks of one job. The first `shared` blocks are part of segments. The next `own` blocks
    belong to no segment."""

    number: int
    segments: tuple[tuple[Hashable, int], ...] = ()
    """Key and number of blocks of each segment of the shared prefix, in order."""
    shared: int = 0
    own: int = 0
    fills: list[tuple[Hashable, int]] = field(default_factory=list)
    """The segments that this job is computing, in order. Each entry has the key of a segment, and
    the value of `shared` at which the segment is complete. Later jobs can use the blocks of these
    segments."""
    prefix_blocks: int = field(init=False)

    def __post_init__(self) -> None:
        self.prefix_blocks = sum(blocks for _, blocks in self.segments)


class KvCache:
    """The KV cache of one engine.

    Args:
        reuse: whether idle blocks can be reused (vLLM's enable_prefix_caching).
    """

    def __init__(self, blocks: int, *, reuse: bool = True) -> None:
        self.blocks = blocks
        self.free = blocks
        self.blank = blocks
        self.pinned = 0
        """Number of unused blocks that cannot be allocated, for example because a connector lost
        them."""
        self._reuse = reuse
        self._extents: dict[Hashable, _Extent] = {}
        self._idle: OrderedDict[Hashable, None] = OrderedDict()

    @property
    def usage_ratio(self) -> float:
        """Share (0 to 1) of the blocks that requests hold. Idle blocks count as free, as in
        vLLM."""
        return (self.blocks - self.free) / self.blocks

    def idle_blocks(self) -> int:
        """Return the number of cached blocks that no request holds."""
        return sum(self._extents[key].resident for key in self._idle)

    def held_prefix_blocks(self) -> int:
        """Return the number of blocks of shared prefixes that at least one job holds."""
        return sum(extent.resident for extent in self._extents.values() if extent.holders)

    def hits(self, lease: Lease, limit: int) -> int:
        """Return the number of blocks that a job would find in the cache, at most `limit`."""
        if not self._reuse:
            return 0
        found = 0
        for key, blocks in lease.segments:
            extent = self._extents.get(key)
            here = min(extent.resident if extent else 0, blocks, limit - found)
            found += here
            if here < blocks:
                return found
        left_behind = self._extents.get(_left_by(lease))
        if left_behind is not None and left_behind.offset == found:
            found = min(found + left_behind.resident, limit)
        return found

    def admit(self, lease: Lease, hits: int, total: int, *, in_all: int = 0) -> bool:
        """Admit a job that finds `hits` cached blocks and needs `total` blocks now.

        Args:
            lease: the job's empty lease.
            total: number of blocks that the job holds after the call.
            in_all: if this is more than `total`, the job is admitted only if this many blocks are
                available.

        Returns:
            False, without any change, if there are too few free blocks.
        """
        shared_hits = min(hits, lease.prefix_blocks)
        own_hits = hits - shared_hits
        extents = [self._extents.get(key) for key, _ in lease.segments]
        woken = sum(each.resident for each in extents if each is not None and not each.holders)
        if woken + own_hits + max(total, in_all) - hits > self.free:
            return False
        left_behind = self._extents.pop(_left_by(lease), None)
        if left_behind is not None:
            self._idle.pop(_left_by(lease), None)
            self.blank += left_behind.resident - own_hits
            self.free -= own_hits
        lease.shared, lease.own = shared_hits, own_hits
        if self._reuse:
            self._hold_prefix(lease)
        self.grow(lease, total)
        return True

    def grow(self, lease: Lease, total: int) -> bool:
        """Extend a job's blocks to `total`, or return False if there are too few free blocks."""
        wanted = total - lease.shared - lease.own
        if wanted > self.free:
            return False
        lease.own += self._fill(lease, wanted)
        self.take(wanted)
        return True

    def pin(self, wanted: int) -> None:
        """Make blocks unavailable (pinned), or available again. Stop when `wanted` blocks are
        pinned or no block is free."""
        more = min(wanted - self.pinned, self.free)
        self.pinned += more
        if more > 0:
            self.take(more)
        else:
            self.free -= more
            self.blank -= more

    def take(self, count: int) -> None:
        """Take free blocks for a job without updating its lease."""
        self.free -= count
        self.blank -= count
        while self.blank < 0:
            key = next(iter(self._idle))
            extent = self._extents[key]
            evicted = min(extent.resident, -self.blank)
            extent.resident -= evicted
            self.blank += evicted
            if not extent.resident:
                del self._idle[key], self._extents[key]

    def release(self, lease: Lease, total: int) -> None:
        """Release all `total` blocks of a job. The blocks stay cached.

        `take` does not update the lease. So before the release, this function adds the blocks that
        `take` allocated for the job's output to the job's segments.
        """
        own = self._fill(lease, total - lease.shared)
        self.free += own
        if not self._reuse:
            self.blank += own
        elif own:
            self._extents[_left_by(lease)] = _Extent(own, offset=lease.shared)
            self._idle[_left_by(lease)] = None
        if self._reuse:
            self._release_prefix(lease)
        lease.shared = lease.own = 0

    def _fill(self, lease: Lease, blocks: int) -> int:
        """Assign a job's next blocks to its segments. Return the number of blocks that no segment
        needs."""
        while lease.fills and blocks > 0:
            key, complete_at = lease.fills[0]
            extent = self._extents[key]
            filled = min(blocks, complete_at - lease.shared)
            extent.resident += filled
            lease.shared += filled
            blocks -= filled
            if lease.shared == complete_at:
                extent.being_filled = False
                del lease.fills[0]
        return blocks

    def _hold_prefix(self, lease: Lease) -> None:
        end, contiguous = 0, True
        for key, blocks in lease.segments:
            extent = self._extents.get(key)
            if extent is None:
                extent = self._extents[key] = _Extent(0)
            if not extent.holders:
                self._idle.pop(key, None)
                self.free -= extent.resident
            extent.holders += 1
            complete_at = end + blocks
            if extent.resident < blocks:
                # If the job uses only a part of the segment's cached blocks, the job's next blocks
                # do not continue the segment and are its own blocks.
                reached = bool(lease.fills) or lease.shared == end + extent.resident
                if contiguous and reached and not extent.being_filled:
                    extent.being_filled = True
                    lease.fills.append((key, complete_at))
                else:
                    contiguous = False
            elif lease.fills:
                contiguous = False
            end = complete_at

    def _release_prefix(self, lease: Lease) -> None:
        for key, _ in lease.fills:
            self._extents[key].being_filled = False
        lease.fills.clear()
        for key, _ in reversed(lease.segments):
            extent = self._extents[key]
            extent.holders -= 1
            if not extent.holders:
                self.free += extent.resident
                if extent.resident:
                    self._idle[key] = None
                else:
                    del self._extents[key]


def _left_by(lease: Lease) -> Hashable:
    return ("left by", lease.number)
