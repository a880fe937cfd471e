"""A fault in which another process uses the server's GPU."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig.faults.fault import DisturbedServer

_DEVICE = Path("/dev/nvidia0")
# The process ends when its parent process ends.
_HOG = """
import os, sys, torch
matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while os.getppid() == int(sys.argv[1]):
    for _ in range(10):
        matrix @ matrix
    torch.cuda.synchronize()
"""


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return _DEVICE.exists()


@contextmanager
def gpu_hog(server: DisturbedServer, draw: random.Random) -> Iterator[None]:
    """Multiply matrices on the GPU without pause, in a separate process with PyTorch.

    Raises:
        RuntimeError: the process did not start.
    """
    hog = subprocess.Popen(
        [sys.executable, "-c", _HOG, str(os.getpid())],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert hog.stdout is not None
        if not hog.stdout.readline():
            raise RuntimeError("the process that uses the GPU did not start; it needs PyTorch")
        yield
    finally:
        hog.kill()
        hog.wait()
