"""Read the data points of a metric, and check each value against the type of its field. Pure.

Invalid points are counted and left out.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    NumberDataPoint,
)

from collector.drop_reasons import Refusal, Skip
from collector.normalise.batch import NormalisedBatch
from collector.normalise.values import (
    MAX_DURATION_S,
    MAX_TOTAL,
    MAX_TOTAL_S,
    RefusalError,
    count,
    number,
    ratio,
    seconds,
)
from telemetry.fields import Quantity, on_the_wire


class SampleField(NamedTuple):
    """A field of a sample row, with its type. The field stores the value of one metric."""

    name: str
    shape: Literal["gauge", "sum"]
    quantity: Quantity


def targets(row_type: type) -> dict[str, SampleField]:
    """Map each metric's name to the field that stores its value."""
    return {
        wire: SampleField(each.name, "sum" if each.is_total else "gauge", each.quantity)
        for wire, each in on_the_wire(row_type).items()
    }


def points_in(metric: Metric) -> int:
    """The number of points in a metric of any type."""
    shape = metric.WhichOneof("data")
    return 0 if shape is None else len(getattr(metric, shape).data_points)


def measured(
    batch: NormalisedBatch, metric: Metric, target: SampleField
) -> Iterator[NumberDataPoint]:
    """Yield the points of a metric that have a value. Points without a value, or of a wrong type,
    are counted."""
    if metric.WhichOneof("data") != target.shape:
        batch.refused[Refusal.WRONG_TYPE] += points_in(metric)
        return
    if target.shape == "sum" and not (
        metric.sum.is_monotonic
        and metric.sum.aggregation_temporality
        == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    ):
        batch.refused[Refusal.NOT_CUMULATIVE] += points_in(metric)
        return
    points = metric.sum.data_points if target.shape == "sum" else metric.gauge.data_points
    for point in points:
        if point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            batch.skipped[Skip.NO_RECORDED_VALUE] += 1
        else:
            yield point


def value_of(point: NumberDataPoint, target: SampleField) -> float:
    """The point's value in the type of its field, or raise RefusalError."""
    match point.WhichOneof("value"):
        case "as_int":
            value: float = point.as_int
        case "as_double":
            value = point.as_double
        case _:
            raise RefusalError(Refusal.MISSING_VALUE)
    if not math.isfinite(value):
        raise RefusalError(Refusal.NOT_FINITE)
    if target.quantity == "score":
        number(abs(value))
        return float(value)
    if target.quantity == "count":
        if value != int(value):
            raise RefusalError(Refusal.WRONG_TYPE)
        return count(int(value), MAX_TOTAL)
    if target.quantity == "number":
        return float(number(value))
    if target.quantity == "ratio":
        return float(ratio(value))
    return float(seconds(value, MAX_TOTAL_S if target.shape == "sum" else MAX_DURATION_S))
