"""Decide whether longer outputs need more KV blocks than the cache has.

Pure. A request is admitted when its prompt fits into the free blocks. If outputs became longer and
the cache became smaller, the running requests need more blocks than the cache has. The engine then
preempts some of them, and new requests wait for blocks.
"""

from diagnosis.evidence import drivers
from diagnosis.evidence.added_requests import outputs_were_added
from diagnosis.evidence.cached import cached_per_case
from diagnosis.growth.case import DiagnosisCase
from diagnosis.growth.demand import NOISE


@cached_per_case
def outgrown(case: DiagnosisCase) -> bool:
    """Return whether longer outputs and fewer KV blocks together caused preemptions."""
    before, now = case.rate("preemptions_total")
    return (
        case.workload.outputs_grew
        and not outputs_were_added(case)
        and (now or 0.0) > (before or 0.0)
        and drivers.log_of_fewer_blocks(case) > NOISE
    )
