"""Whose GPUs are, as the user says: by the GPU, or by the labels of a dcgm-exporter.

Pure. What is said here wins over all that is found out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from string import Formatter
from types import MappingProxyType
from typing import Final

from collector.gpus.dcgm_series import LABELS
from collector.gpus.reader import Told
from telemetry.gpus import GpuSource

ALL: Final = "*"
TEMPLATE: Final = "{pod}"
ALLOWED: Final = (
    "GPU=REPLICA, where GPU is a UUID, the number of a GPU of this machine, HOST/NUMBER of a"
    " dcgm-exporter's, or * for every other GPU of this machine"
)


@dataclass(frozen=True, slots=True)
class Claims:
    """What the user says.

    Attributes:
        by_gpu: replica of a GPU, by one of its names.
        template: replica of a dcgm-exporter's GPU, made of its labels.
    """

    by_gpu: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    template: str = TEMPLATE

    def said(self, gpu: Told) -> str | None:
        """Whose it is, by what is said of it; None where nothing is."""
        return next((self.by_gpu[name] for name in names_of(gpu) if name in self.by_gpu), None)

    def labelled(self, gpu: Told) -> str | None:
        """Whose it is, by its labels; None where they do not say."""
        return filled(self.template, gpu.labels) if gpu.labels else None


def names_of(gpu: Told) -> tuple[str, ...]:
    """What the user may call a GPU, the most exact first."""
    number = None if gpu.index is None else str(gpu.index)
    if gpu.source is GpuSource.DCGM:
        host = gpu.labels.get("Hostname")
        return (gpu.gpu, *([f"{host}/{number}"] if host and number else []))
    return (gpu.gpu, *([number] if number else []), ALL)


def claims_of(given: Iterable[str], template: str = TEMPLATE) -> Claims:
    """Read what `--gpu-replica` and `--dcgm-replica` were given.

    Raises:
        ValueError: malformed, or one GPU twice; says what is allowed.
    """
    by_gpu: dict[str, str] = {}
    for words in given:
        gpu, is_, replica = (part.strip() for part in words.partition("="))
        if not (gpu and is_ and replica):
            raise ValueError(f"{words!r}: must be {ALLOWED}")
        if by_gpu.setdefault(gpu, replica) != replica:
            raise ValueError(f"{words!r}: {gpu} is {by_gpu[gpu]}'s already")
    return Claims(MappingProxyType(by_gpu), checked_template(template))


def checked_template(template: str) -> str:
    """The template, if it can be filled.

    Raises:
        ValueError: it names something other than a label, or nothing at all.
    """
    allowed = f"allowed: text with {{NAME}}s of {', '.join(sorted(LABELS))}"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{template!r}: {error}; {allowed}") from error
    named = [part for part in parts if part[1] is not None]
    for _, name, form, conversion in named:
        if name not in LABELS or form or conversion:
            raise ValueError(f"{template!r}: {name!r} is no label; {allowed}")
    if not named:
        raise ValueError(
            f"{template!r} names no label: every GPU would be one replica's; {allowed}"
        )
    return template


def filled(template: str, labels: Mapping[str, str]) -> str | None:
    """The replica that labels make; None where one is missing."""
    names = {name for _, name, _, _ in Formatter().parse(template) if name}
    if not names <= labels.keys():
        return None
    return template.format_map(labels)
