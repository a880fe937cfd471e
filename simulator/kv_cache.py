"""Paged KV cache with prefix reuse: blocks are held, idle (cached, evictable) or blank.

Pure. Blocks are counted, not numbered. The blocks of one shared prefix form an extent, as do the
blocks that a finished job leaves. A prefix is always resident from its start. So every operation is
O(1) in the length of a prompt, and an hour can be simulated in seconds.

held + idle + blank = blocks, always. Idle extents are evicted least recently used first, each from
its end, as vLLM does by freeing a request's last block first. Source: vLLM
v1/core/kv_cache_manager.py and block_pool.py.
"""

from collections import OrderedDict
from dataclasses import dataclass

BLOCK_TOKENS = 16
"""Tokens per block: vLLM's default."""

Key = str | int
"""A shared prefix by its name; a finished job's blocks by its number."""


def blocks_for(tokens: int) -> int:
    """Return the blocks needed for `tokens`."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(slots=True)
class _Extent:
    resident: int
    """Its blocks in the cache, from its start."""
    holders: int = 0
    being_filled: bool = False
    offset: int = 0
    """For a finished job: the number of shared prefix blocks before its own."""


@dataclass(slots=True)
class Lease:
    """The blocks of one job: `shared` blocks of its prefix, then `own` blocks."""

    number: int
    prefix: str | None = None
    prefix_blocks: int = 0
    shared: int = 0
    own: int = 0
    fills: bool = False
    """Whether this job's blocks become the prefix for later jobs."""


class KvCache:
    """The blocks of one engine.

    Args:
        blocks: their number.
        reuse: whether idle blocks can be hit (vLLM's enable_prefix_caching).
    """

    def __init__(self, blocks: int, *, reuse: bool = True) -> None:
        self.blocks = blocks
        self.free = blocks
        """Blocks that an allocation may take: blank or idle."""
        self.blank = blocks
        self.pinned = 0
        """Blocks that are unused but not available, such as those lost by a connector."""
        self._reuse = reuse
        self._extents: dict[Key, _Extent] = {}
        self._idle: OrderedDict[Key, None] = OrderedDict()

    @property
    def usage_ratio(self) -> float:
        """Share of the blocks held by requests; idle ones count as free, as in vLLM."""
        return (self.blocks - self.free) / self.blocks

    def idle_blocks(self) -> int:
        """Cached blocks that no request holds."""
        return sum(self._extents[key].resident for key in self._idle)

    def held_prefix_blocks(self) -> int:
        """Blocks of shared prefixes held by at least one job."""
        return sum(extent.resident for extent in self._extents.values() if extent.holders)

    def hits(self, lease: Lease, limit: int) -> int:
        """Return how many blocks, at most `limit`, a job would find cached."""
        if not self._reuse:
            return 0
        found = 0
        if lease.prefix_blocks:
            extent = self._extents.get(lease.prefix or "")
            found = min(extent.resident if extent else 0, lease.prefix_blocks, limit)
            if found < lease.prefix_blocks:
                return found
        left_behind = self._extents.get(lease.number)
        if left_behind is not None and left_behind.offset == found:
            found = min(found + left_behind.resident, limit)
        return found

    def admit(self, lease: Lease, hits: int, total: int) -> bool:
        """Admit a job that finds `hits` blocks and needs `total` now.

        Returns:
            False, with nothing changed, if there are too few free blocks.
        """
        shared_hits = min(hits, lease.prefix_blocks)
        own_hits = hits - shared_hits
        extent = self._extents.get(lease.prefix or "") if lease.prefix_blocks else None
        woken = extent.resident if extent is not None and not extent.holders else 0
        if woken + own_hits + total - hits > self.free:
            return False
        left_behind = self._extents.pop(lease.number, None)
        if left_behind is not None:
            self._idle.pop(lease.number, None)
            self.blank += left_behind.resident - own_hits
            self.free -= own_hits
        if lease.prefix_blocks and self._reuse:
            self._hold_prefix(lease, extent)
        lease.shared, lease.own = shared_hits, own_hits
        self.grow(lease, total)
        return True

    def grow(self, lease: Lease, total: int) -> bool:
        """Extend a job's blocks to `total`; False, with nothing changed, if there are too few."""
        wanted = total - lease.shared - lease.own
        if wanted > self.free:
            return False
        if lease.fills:
            filled = min(wanted, lease.prefix_blocks - lease.shared)
            extent = self._extents[lease.prefix or ""]
            extent.resident += filled
            lease.shared += filled
            lease.own += wanted - filled
            if lease.shared == lease.prefix_blocks:
                lease.fills = extent.being_filled = False
        else:
            lease.own += wanted
        self.take(wanted)
        return True

    def pin(self, wanted: int) -> None:
        """Pin this many blocks, as far as they are free, or release the excess."""
        more = min(wanted - self.pinned, self.free)
        self.pinned += more
        if more > 0:
            self.take(more)
        else:
            self.free -= more
            self.blank -= more

    def take(self, count: int) -> None:
        """Take free blocks for jobs whose leases are settled at release."""
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
        """Release all of a job's blocks, which have grown to `total`; they stay cached."""
        own = total - lease.shared
        self.free += own
        if not self._reuse:
            self.blank += own
        elif own:
            self._extents[lease.number] = _Extent(own, offset=lease.shared)
            self._idle[lease.number] = None
        if lease.prefix_blocks and self._reuse:
            self._let_prefix_go(lease)
        lease.shared = lease.own = 0

    def _hold_prefix(self, lease: Lease, extent: _Extent | None) -> None:
        key = lease.prefix or ""
        if extent is None:
            extent = self._extents[key] = _Extent(0)
        if not extent.holders:
            self._idle.pop(key, None)
            self.free -= extent.resident
        extent.holders += 1
        if extent.resident < lease.prefix_blocks and not extent.being_filled:
            lease.fills = extent.being_filled = True

    def _let_prefix_go(self, lease: Lease) -> None:
        key = lease.prefix or ""
        extent = self._extents[key]
        extent.holders -= 1
        if lease.fills:
            lease.fills = extent.being_filled = False
        if not extent.holders:
            self.free += extent.resident
            if extent.resident:
                self._idle[key] = None
            else:
                del self._extents[key]
