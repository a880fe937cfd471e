import subprocess
import sys

import pytest

KEEPS = """
import threading
from pathlib import Path
{call}
def arenas():
    maps = Path("/proc/self/maps").read_text().splitlines()
    # glibc reserves 64 MiB for an arena, of which it uses the beginning.
    bounds = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    return {{low >> 26 for low, high in bounds if low % 2**26 == 0}}
before = arenas()
done = threading.Barrier(9)
def work():
    held = [b"x" * 1000 for _ in range(1000)]  # beyond 512 bytes Python asks malloc
    done.wait()
    done.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads: each.start()
done.wait()
print(len(arenas() - before))
done.wait()
"""


def arenas_of(call: str) -> int:
    printed = subprocess.run(
        [sys.executable, "-c", KEEPS.format(call=call)], capture_output=True, text=True, check=True
    )
    return int(printed.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's arenas are Linux'")
def test_threads_share_arenas() -> None:
    """By default, the allocator of eight threads has eight arenas."""
    many, few = (
        arenas_of(""),
        arenas_of("from server.memory import limit_allocator_memory; limit_allocator_memory()"),
    )
    if many < 8:
        pytest.skip("this libc has no arena a thread")
    assert few <= 2
