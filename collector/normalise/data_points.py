"""A metric's data points, each checked against what it ought to be.

Pure. What is wrong with a point is counted and costs its own value.
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
from collector.normalise.batch import Batch
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

Quantity = Literal["count", "number", "ratio", "score", "seconds"]
"""A score may be of either sign; nothing else may be below zero."""


class Field(NamedTuple):
    """Where a metric goes in a sample, and what it is."""

    name: str
    shape: Literal["gauge", "sum"]
    quantity: Quantity


def points_in(metric: Metric) -> int:
    """How many points a metric has, of whatever shape."""
    shape = metric.WhichOneof("data")
    return 0 if shape is None else len(getattr(metric, shape).data_points)


def measured(batch: Batch, metric: Metric, target: Field) -> Iterator[NumberDataPoint]:
    """The points that are to be read. What is of another shape, or says itself that it has
    no value, is counted here."""
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


def value_of(point: NumberDataPoint, target: Field) -> float:
    """The point's value as its field holds it, or a refusal."""
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
