import asyncio
from collections.abc import Callable

from collector.gpus.local_readers import AMD_SMI, NVML, GpuReaders
from collector.scrape.targets import place
from tests.collector.gpus.driver import Card, Driver


def test_readers_are_built_by_name() -> None:
    async def build() -> list[tuple[str, float]]:
        readers = GpuReaders(local=True, dcgm=[place("http://gpu-host:9400")], dcgm_every_s=10)
        await readers.close()
        return [(each.name, each.every_s) for each in readers.all]

    assert asyncio.run(build()) == [(NVML, 1.0), (AMD_SMI, 1.0), ("http://gpu-host:9400", 10)]


def test_a_driver_is_closed_on_its_thread(install: Callable[..., Driver]) -> None:
    driver = install(Card())

    async def look() -> None:
        readers = GpuReaders()
        reading = await readers.all[0].reader.read()
        assert len(reading.gpus) == 1
        await readers.close()
        async with asyncio.timeout(20):
            while driver.open:
                await asyncio.sleep(0.001)

    asyncio.run(look())
    assert driver.buffers == set()
