"""The GPUs that `tailspan up` and `tailspan gpus` sample, and the replicas that use them."""

from dataclasses import dataclass, field

from collector.gpus.configured_owners import ConfiguredOwners
from collector.gpus.local_readers import GpuReaders, host_name
from collector.gpus.owners import Owners
from collector.gpus.processes import HostProcesses
from collector.scrape.targets import Discovery


@dataclass(frozen=True, slots=True)
class GpuSetup:
    """The sources of GPU samples: the GPUs of this machine, and dcgm-exporters."""

    local: bool = False
    dcgm: tuple[Discovery, ...] = ()
    dcgm_every_s: float = 5.0
    configured: ConfiguredOwners = field(default_factory=ConfiguredOwners)
    """The replicas that the user assigned to GPUs."""

    @property
    def any(self) -> bool:
        """Whether there is any source of GPU samples."""
        return self.local or bool(self.dcgm)

    def readers(self) -> GpuReaders:
        """The readers of the sources of GPU samples."""
        return GpuReaders(local=self.local, dcgm=self.dcgm, dcgm_every_s=self.dcgm_every_s)

    def owners(self, *, receives_engines: bool = True) -> Owners:
        """The assignment of GPUs to replicas."""
        return Owners(
            host_name(), HostProcesses(), self.configured, receives_engines=receives_engines
        )
