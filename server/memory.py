"""Reduce the memory that allocators hold in a process that runs for weeks.

glibc gives each thread its own memory area (arena), and Arrow's allocator keeps freed memory. In a
measurement, a quarter of the process's memory was unused memory in arenas (benchmarks/ingest.py).
Two arenas are enough, because Python's global interpreter lock lets only one thread run at a time.
"""

import ctypes
from typing import Final

import pyarrow as pa

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""The constant `M_ARENA_MAX` of glibc's <malloc.h>."""


def limit_allocator_memory() -> None:
    """Limit the freed memory that allocators keep. Call before any thread starts.

    Without glibc, the arenas are unlimited.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
