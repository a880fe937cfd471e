"""The readers of this machine's own GPUs, and of dcgm-exporters: built, and given back."""

import socket
from collections.abc import Sequence
from typing import Final

from collector.gpus.amd_smi import AmdSmiReader
from collector.gpus.dcgm import DcgmReader
from collector.gpus.driver_thread import Apart
from collector.gpus.nvml import NvmlReader
from collector.gpus.sampler import GpuReader
from collector.scrape.fetch import Clients
from collector.scrape.targets import Discovery

EVERY_S: Final = 1.0
NVML: Final = "nvml"
AMD_SMI: Final = "amd_smi"


class GpuReaders:
    """All readers that were asked for; `close` gives back what they hold.

    Args:
        local: whether GPUs of this machine are read.
        dcgm: where dcgm-exporters are.
        dcgm_every_s: how often they are asked.
    """

    def __init__(
        self,
        *,
        local: bool = True,
        dcgm: Sequence[Discovery] = (),
        dcgm_every_s: float = 5.0,
    ) -> None:
        self._apart = {NVML: Apart(NvmlReader()), AMD_SMI: Apart(AmdSmiReader())} if local else {}
        self._clients = Clients()
        self.all: list[GpuReader] = [
            GpuReader(name, reader, EVERY_S) for name, reader in self._apart.items()
        ]
        self.all += [
            GpuReader(each.name, DcgmReader(each, self._clients), dcgm_every_s) for each in dcgm
        ]

    async def close(self) -> None:
        """Give back what the readers hold."""
        for reader in self._apart.values():
            reader.close()
        await self._clients.aclose()


def host_name() -> str:
    """What this machine is called, as the instrumentation of a vLLM on it says, too."""
    return socket.gethostname()
