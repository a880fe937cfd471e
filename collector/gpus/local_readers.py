"""The readers of this machine's GPUs and of dcgm-exporters."""

import socket
from collections.abc import Sequence
from typing import Final

from collector.gpus.amd_smi import AmdSmiReader
from collector.gpus.dcgm import DcgmReader
from collector.gpus.driver_thread import DriverThread
from collector.gpus.nvml import NvmlReader
from collector.gpus.sampler import ScheduledGpuReader
from collector.scrape.fetch import Clients
from collector.scrape.targets import Discovery

EVERY_S: Final = 1.0
NVML: Final = "nvml"
AMD_SMI: Final = "amd_smi"


class GpuReaders:
    """All GPU readers that the user configured. `close` releases their resources."""

    def __init__(
        self,
        *,
        local: bool = True,
        dcgm: Sequence[Discovery] = (),
        dcgm_every_s: float = 5.0,
    ) -> None:
        self._local = (
            {NVML: DriverThread(NvmlReader()), AMD_SMI: DriverThread(AmdSmiReader())}
            if local
            else {}
        )
        self._clients = Clients()
        self.all: list[ScheduledGpuReader] = [
            ScheduledGpuReader(name, reader, EVERY_S) for name, reader in self._local.items()
        ]
        self.all += [
            ScheduledGpuReader(each.name, DcgmReader(each, self._clients), dcgm_every_s)
            for each in dcgm
        ]

    async def close(self) -> None:
        """Release the readers' resources."""
        for reader in self._local.values():
            reader.close()
        await self._clients.aclose()


def host_name() -> str:
    """This machine's name, as the plugin reports it."""
    return socket.gethostname()
