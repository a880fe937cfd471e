"""Families of metrics, and their text: Prometheus' own format and OpenMetrics.

prometheus_client makes an object of every sample and a dictionary of its labels: 90 ms and more
for what is 15 ms of text here (docs/decisions/029). Its model is still what a family can be had
as (`metric`), and a test holds this text against what its parsers read and its writer writes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, Literal, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as LibraryExemplar
from prometheus_client.utils import floatToGoString

from exporters.kinds import REQUEST_LABELS, Histogram, Series

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[str, ...]
"""Label values, in the order of the series' labels."""


Exemplar = tuple[str, float, float]
"""A request that stands for its bucket: trace id (hex), seconds, and when it ended in unix
seconds. Only OpenMetrics can tell of it. No named tuple: seven are made of every request."""


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
        name, names = self.of.name, self.of.labels
        return _head(name, self.of.help, self.kind, openmetrics) + "".join(
            [
                f"{name}{{{_labels(names, labels)}}} {value}\n" if names else f"{name} {value}\n"
                for labels, value in self.values.items()
            ]
        )

    def metric(self) -> Metric:
        """As the library has it."""
        metric = Metric(_base(self.name, self.kind), self.of.help, self.kind)
        for labels, value in self.values.items():
            metric.add_sample(self.name, dict(zip(self.of.labels, labels, strict=True)), value)
        return metric


@dataclass(slots=True)
class Distribution:
    """One histogram: observations by bucket, not cumulative; the last is beyond all bounds."""

    counts: list[int]
    sum_s: float
    exemplars: dict[int, Exemplar]
    """By bucket: the latest request in it."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """Histograms of one latency, by model and replica."""

    of: Histogram
    values: Mapping[tuple[str, str], Distribution]

    @property
    def name(self) -> str:
        """As it is told."""
        return self.of.name

    @property
    def series(self) -> int:
        """How many: buckets, sum and count."""
        return len(self.values) * (len(self.of.bounds_s) + 3)

    def text(self, openmetrics: bool) -> str:
        """Its lines."""
        name = self.of.name
        lines = [_head(name, self.of.help, "histogram", openmetrics)]
        ends = [f'le="{bound}"}} ' for bound in _bounds(self.of)]
        for pair, each in self.values.items():
            labels = _labels(REQUEST_LABELS, pair)
            begin = f"{name}_bucket{{{labels},"
            cumulative = list(accumulate(each.counts))
            first = len(lines)
            lines += [f"{begin}{end}{count}\n" for end, count in zip(ends, cumulative, strict=True)]
            if openmetrics:
                for bucket, (trace_id, value_s, at_s) in each.exemplars.items():
                    line = lines[first + bucket][:-1]
                    lines[first + bucket] = f'{line} # {{trace_id="{trace_id}"}} {value_s} {at_s}\n'
            lines.append(f"{name}_count{{{labels}}} {cumulative[-1]}\n")
            lines.append(f"{name}_sum{{{labels}}} {each.sum_s}\n")
        return "".join(lines)

    def metric(self) -> Metric:
        """As the library has it."""
        metric = Metric(self.name, self.of.help, "histogram")
        for pair, each in self.values.items():
            labels = dict(zip(REQUEST_LABELS, pair, strict=True))
            cumulative = list(accumulate(each.counts))
            for bucket, (bound, count) in enumerate(zip(_bounds(self.of), cumulative, strict=True)):
                metric.add_sample(
                    f"{self.name}_bucket",
                    {**labels, "le": bound},
                    count,
                    exemplar=_library_exemplar(each.exemplars.get(bucket)),
                )
            metric.add_sample(f"{self.name}_count", labels, cumulative[-1])
            metric.add_sample(f"{self.name}_sum", labels, each.sum_s)
        return metric


def write(families: Iterable[Family], openmetrics: bool) -> bytes:
    """The text of a whole scrape."""
    text = "".join([family.text(openmetrics) for family in families])
    return (text + "# EOF\n" if openmetrics else text).encode()


def _base(name: str, kind: str) -> str:
    return name.removesuffix("_total") if kind == "counter" else name


def _head(name: str, help_: str, kind: str, openmetrics: bool) -> str:
    told = _base(name, kind) if openmetrics else name
    help_ = _escaped(help_) if openmetrics else help_.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {told} {help_}\n# TYPE {told} {kind}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@lru_cache(maxsize=1 << 17)
def _labels(names: Labels, values: Labels) -> str:
    """What stands in the braces; the labels in the order of their names."""
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in sorted(zip(names, values, strict=True))
    )


@lru_cache(maxsize=64)
def _bounds(of: Histogram) -> tuple[str, ...]:
    return (*map(floatToGoString, of.bounds_s), "+Inf")


def _library_exemplar(exemplar: Exemplar | None) -> LibraryExemplar | None:
    if exemplar is None:
        return None
    trace_id, value_s, at_unix_s = exemplar
    return LibraryExemplar({"trace_id": trace_id}, value_s, at_unix_s)
