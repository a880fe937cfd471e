"""Families of metrics, and what they are told as: Prometheus' own text, OpenMetrics, protobuf.

prometheus_client makes an object of every sample and a dictionary of its labels: 90 ms and more
for what is 15 ms of text here (docs/decisions/029). Its model is still what a family can be had
as (`metric`), and a test holds this text against what its parsers read and its writer writes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from exporters.definitions.series_types import Series
from exporters.format import protobuf
from exporters.format.label_cache import Kept, Labels
from exporters.format.negotiation import Format


class Family(Protocol):
    """All that is told under one name."""

    @property
    def name(self) -> str:
        """As it is told."""

    @property
    def series(self) -> int:
        """How many."""

    def text(self, openmetrics: bool) -> str:
        """Its lines."""

    def protobuf(self) -> bytes:
        """As one message, its length before it."""

    def metric(self) -> Metric:
        """As the library has it."""


class Families(Collector):
    """What tells of families; prometheus_client's collector as well."""

    def families(self) -> Iterator[Family]:
        """Every family as of now."""
        raise NotImplementedError

    def collect(self) -> Iterator[Metric]:
        """The same as the library's metrics."""
        return (family.metric() for family in self.families())


@dataclass(frozen=True, slots=True)
class Scalars:
    """Series of one value each: a counter, a gauge, or a summary's quantiles."""

    of: Series
    kind: Literal["counter", "gauge", "summary"]
    values: Mapping[Labels, float]

    @property
    def name(self) -> str:
        """As it is told."""
        return self.of.name

    @property
    def series(self) -> int:
        """How many."""
        return len(self.values)

    def text(self, openmetrics: bool) -> str:
        """Its lines."""
        begins = map(_begins(self.of).__getitem__, self.values)
        lines = [
            f"{begin}{value}\n" for begin, value in zip(begins, self.values.values(), strict=True)
        ]
        return head(self.of.name, self.of.help, self.kind, openmetrics) + "".join(lines)

    def protobuf(self) -> bytes:
        """As one message. Quantiles are gauges in it: of a summary Prometheus makes up a sum and
        a count of 0 where it has none."""
        kind = protobuf.COUNTER if self.kind == "counter" else protobuf.GAUGE
        metrics = protobuf.scalars(kind, self.of.labels, self.values)
        return protobuf.family(self.name, self.of.help, kind, metrics)

    def metric(self) -> Metric:
        """As the library has it."""
        metric = Metric(_base(self.name, self.kind), self.of.help, self.kind)
        for labels, value in self.values.items():
            metric.add_sample(self.name, dict(zip(self.of.labels, labels, strict=True)), value)
        return metric


def write(families: Iterable[Family], format_: Format) -> bytes:
    """A whole scrape."""
    if format_ is Format.PROTOBUF:
        return b"".join([family.protobuf() for family in families])
    openmetrics = format_ is Format.OPENMETRICS
    text = "".join([family.text(openmetrics) for family in families])
    return (text + "# EOF\n" if openmetrics else text).encode()


def _base(name: str, kind: str) -> str:
    return name.removesuffix("_total") if kind == "counter" else name


def head(name: str, help_: str, kind: str, openmetrics: bool) -> str:
    """What stands above the lines of a family."""
    told = _base(name, kind) if openmetrics else name
    help_ = _escaped(help_) if openmetrics else help_.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {told} {help_}\n# TYPE {told} {kind}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def labels_text(names: Labels, values: Labels) -> str:
    """What stands in the braces; the labels in the order of their names."""
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in sorted(zip(names, values, strict=True))
    )


@lru_cache(maxsize=256)
def _begins(of: Series) -> Kept[str]:
    """What stands before a value."""
    if not of.labels:
        return Kept(lambda _: f"{of.name} ")
    return Kept(lambda labels: f"{of.name}{{{labels_text(of.labels, labels)}}} ")
