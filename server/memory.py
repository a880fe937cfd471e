"""A process that runs for weeks gives back what it no longer needs.

glibc gives each thread an arena of its own, and Arrow's allocator keeps what was freed for later:
of many threads that take turns with megabytes, each keeps some, which is a quarter of all memory
(benchmarks/ingest.py). Python's lock lets them take turns anyway, so two arenas do.
"""

import ctypes
from typing import Final

import pyarrow as pa

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""From glibc's <malloc.h>."""


def keep_little() -> None:
    """Set it so, for this process; before it starts threads. Another libc is left as it is."""
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
