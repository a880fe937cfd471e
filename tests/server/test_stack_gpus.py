import asyncio
import urllib.request
from collections.abc import Callable

import pynvml
import pytest
from sqlalchemy import Engine, text

from collector.gpus import amd_smi
from collector.gpus.configured_owners import configured_owners_of
from collector.gpus.reader import Absence, AbsenceReason, ReaderError
from server.gpu_setup import GpuSetup
from server.stack import Ports, Stack
from tests.collector.gpus import conftest as gpus_of_tests
from tests.collector.gpus.driver import Card, Driver

install = gpus_of_tests.install
FREE = Ports(0, 0, 0, 0)


@pytest.fixture(autouse=True)
def _no_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ReaderError(Absence(AbsenceReason.NO_PACKAGE))

    monkeypatch.setattr(amd_smi, "load", load)


async def _scraped(stack: Stack) -> str:
    def get() -> str:
        with urllib.request.urlopen(stack.metrics_url, timeout=20) as answer:
            body: str = answer.read().decode()
            return body

    return await asyncio.to_thread(get)


def test_local_gpus_are_sampled(engine: Engine, url: str, install: Callable[..., Driver]) -> None:
    install(Card())

    async def run() -> str:
        setup = GpuSetup(local=True, configured=configured_owners_of(["0=chat-0"]))
        async with Stack(engine, url, "127.0.0.1", FREE, explorer=False, gpus=setup) as stack:
            async with asyncio.timeout(30):
                while "tailspan_gpu_power_watts" not in (printed := await _scraped(stack)):
                    await asyncio.sleep(0.02)
            return printed

    printed = asyncio.run(run())
    about = 'gpu="GPU-1",model_name="NVIDIA H100 80GB HBM3",replica="chat-0"'
    assert f"tailspan_gpu_power_watts{{{about}}} 512.5\n" in printed
    assert 'tailspan_gpu_reader_up{reader="nvml"} 1\n' in printed
    assert 'reader="amd_smi"' not in printed
    with engine.connect() as connection:
        [row] = connection.execute(
            text("SELECT DISTINCT replica, gpu, source, power_w FROM gpu_samples")
        )
    assert tuple(row) == ("chat-0", "GPU-1", "nvml", 512.5)


def test_without_gpus_no_series(engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)

    async def run() -> str:
        setup = GpuSetup(local=True)
        async with Stack(engine, url, "127.0.0.1", FREE, explorer=False, gpus=setup) as stack:
            assert stack.gpu_sampler is not None
            async with asyncio.timeout(30):
                while not all(state.absence for state in stack.gpu_sampler.report()):
                    await asyncio.sleep(0.01)
            return await _scraped(stack)

    assert "tailspan_gpu" not in asyncio.run(run())
