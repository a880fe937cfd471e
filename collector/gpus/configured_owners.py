"""Read from the configuration which replica uses a GPU. Pure. The configuration either names the
GPU, or builds the replica's name from labels of a dcgm-exporter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from string import Formatter
from types import MappingProxyType
from typing import Final

from collector.gpus.dcgm_series import LABELS
from collector.gpus.reader import GpuReading
from telemetry.gpus import GpuSource

ALL: Final = "*"
TEMPLATE: Final = "{pod}"
ALLOWED: Final = (
    "GPU=REPLICA, where GPU is a UUID, the number of a GPU of this machine, HOST/NUMBER of a GPU"
    " of a dcgm-exporter, or * for every other GPU of this machine"
)


@dataclass(frozen=True, slots=True)
class ConfiguredOwners:
    """The configured replicas of GPUs.

    Attributes:
        by_gpu: maps a GPU's name (see `names_of`) to its replica.
        template: builds the replica's name from labels of a dcgm-exporter, such as `{pod}`.
    """

    by_gpu: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    template: str = TEMPLATE

    def assigned(self, gpu: GpuReading) -> str | None:
        """The replica configured for a GPU, or None."""
        return next((self.by_gpu[name] for name in names_of(gpu) if name in self.by_gpu), None)

    def from_labels(self, gpu: GpuReading) -> str | None:
        """The replica for a GPU's labels, or None if a label is missing."""
        return filled(self.template, gpu.labels) if gpu.labels else None


def names_of(gpu: GpuReading) -> tuple[str, ...]:
    """The names by which the configuration can name this GPU, the most specific one first."""
    number = None if gpu.index is None else str(gpu.index)
    if gpu.source is GpuSource.DCGM:
        host = gpu.labels.get("Hostname")
        return (gpu.gpu, *([f"{host}/{number}"] if host and number else []))
    return (gpu.gpu, *([number] if number else []), ALL)


def configured_owners_of(given: Iterable[str], template: str = TEMPLATE) -> ConfiguredOwners:
    """Parse the arguments of `--gpu-replica` and `--dcgm-replica`.

    Raises:
        ValueError: an argument is malformed, or a GPU has two replicas.
    """
    by_gpu: dict[str, str] = {}
    for words in given:
        gpu, is_, replica = (part.strip() for part in words.partition("="))
        if not (gpu and is_ and replica):
            raise ValueError(f"{words!r}: must be {ALLOWED}")
        if by_gpu.setdefault(gpu, replica) != replica:
            raise ValueError(f"{words!r}: {gpu} is already assigned to {by_gpu[gpu]}")
    return ConfiguredOwners(MappingProxyType(by_gpu), checked_template(template))


def checked_template(template: str) -> str:
    """Return the template if it is valid.

    Raises:
        ValueError: the template has no field, or a field that is not a label.
    """
    allowed = f"allowed: text with {{NAME}}s of {', '.join(sorted(LABELS))}"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r}: {error}; {allowed}") from error
    named = [part for part in parts if part[1] is not None]
    for _, name, form, conversion in named:
        if name not in LABELS or form or conversion:
            raise ValueError(f"{template!r}: {name!r} is not a label; {allowed}")
    if not named:
        raise ValueError(
            f"{template!r} has no label, so all GPUs would have one replica; {allowed}"
        )
    return template


def filled(template: str, labels: Mapping[str, str]) -> str | None:
    """Fill a template with labels. Return None if a label is missing."""
    names = {name for _, name, _, _ in Formatter().parse(template) if name}
    if not names <= labels.keys():
        return None
    return template.format_map(labels)
