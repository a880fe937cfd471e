"""Reduce the memory that allocators hold in a process that runs for weeks.

glibc gives each thread an arena, and Arrow's allocator keeps freed memory. With many threads that
take turns, each thread keeps some megabytes, a quarter of all memory (benchmarks/ingest.py). Two
arenas are enough, because Python's lock makes the threads take turns.
"""

import ctypes
from typing import Final

import pyarrow as pa

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""The constant from glibc's <malloc.h>."""


def keep_little() -> None:
    """Limit the allocators of this process; call this before it starts threads.

    It has no effect with another libc.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
