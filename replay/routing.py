"""Choose the server for a request: routing policies.

Pure. Equally good servers are chosen in turn, so that all servers of an idle fleet get requests.
"""

from collections.abc import Sequence


def least_outstanding(outstanding: Sequence[int], turn: int) -> int:
    """Return the server with the fewest unfinished requests.

    Args:
        outstanding: number of unfinished requests of each server.
        turn: number of requests that were routed before this request.
    """
    count = len(outstanding)
    return min(
        ((turn + place) % count for place in range(count)), key=lambda server: outstanding[server]
    )


def prefix_aware(
    outstanding: Sequence[int], cached_blocks: Sequence[int], slack: int, turn: int
) -> int:
    """Return the server with the longest cached prefix of the prompt.

    Args:
        cached_blocks: number of the prompt's blocks in each server's KV cache.
        slack: maximum of (unfinished requests of the server with the longest prefix − unfinished
            requests of the least loaded server). If the difference is larger, the least loaded
            server is returned.
    """
    count = len(outstanding)
    freest = least_outstanding(outstanding, turn)
    longest = min(
        ((turn + place) % count for place in range(count)),
        key=lambda server: (-cached_blocks[server], outstanding[server]),
    )
    if outstanding[longest] <= outstanding[freest] + slack:
        return longest
    return freest
