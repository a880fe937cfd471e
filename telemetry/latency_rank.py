"""The rank of a request's latency among comparable requests."""

from typing import NamedTuple


class LatencyRank(NamedTuple):
    """The numbers of compared, faster and slower requests. The compared requests include the
    request itself."""

    number: int
    quicker: int
    slower: int
