"""Limit the number of stored operations per trace, so that one trace cannot fill the table.

The newest span ids of all traces are remembered, so that a repeated span is not counted again.
"""

from collections import OrderedDict
from typing import Final

from collector.drop_reasons import Refusal
from collector.normalise.batch import NormalisedBatch
from telemetry.application_operations import MAX_PER_TRACE, Operation

MAX_REMEMBERED: Final = 100_000
"""Maximum number of remembered spans. They use about 10 MB (100 bytes each)."""


class OperationLimits:
    """Removes a message's operations that exceed the limit of their trace."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, set[str]] = OrderedDict()
        self._remembered = 0

    def __call__(self, batch: NormalisedBatch, arrived_unix_ns: int) -> None:
        """Keep the operations that are within the limit."""
        kept = []
        for each in batch.operations:
            spans = self._traces.setdefault(each.trace_id, set())
            self._traces.move_to_end(each.trace_id)
            if each.span_id not in spans:
                if len(spans) >= MAX_PER_TRACE:
                    # A client's call is also a request, which is still stored.
                    if each.operation is not Operation.CALL:
                        batch.accepted -= 1
                        batch.refused[Refusal.TOO_MANY_OPERATIONS] += 1
                        batch.why[Refusal.TOO_MANY_OPERATIONS] = (
                            f"at most {MAX_PER_TRACE} of one trace"
                        )
                    continue
                spans.add(each.span_id)
                self._remembered += 1
            kept.append(each)
        batch.operations = kept
        while self._remembered > MAX_REMEMBERED:
            _, oldest = self._traces.popitem(last=False)
            self._remembered -= len(oldest)
