"""Reduce the memory that allocators hold in a process that runs for weeks.

glibc gives each thread a separate memory area (arena), and Arrow's allocator keeps freed memory.
With many threads, the unused memory in the arenas was a quarter of the process's memory
(benchmarks/ingest.py). Two arenas are enough, because Python's global lock allows only one thread
to run at a time.
"""

import ctypes
from typing import Final

import pyarrow as pa

ARENAS: Final = 2
_M_ARENA_MAX: Final = -8
"""The constant from glibc's <malloc.h>."""


def limit_allocator_memory() -> None:
    """Limit the freed memory that the allocators keep. Call this function before any thread starts.
    It has no effect if the libc is not glibc."""
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, ARENAS)
