"""The router's rules: which of several servers gets a request.

Pure. Ties rotate; otherwise the last server of an idle fleet would get none.
"""

from collections.abc import Sequence


def least_outstanding(outstanding: Sequence[int], turn: int) -> int:
    """Return the server with the fewest unfinished requests.

    Args:
        outstanding: of each server.
        turn: number of requests that were routed before.
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
        outstanding: of each server.
        cached_blocks: blocks of the prompt that each server's KV cache holds.
        slack: how many more unfinished requests it may have than the least loaded server, which
            gets the request otherwise.
        turn: number of requests that were routed before.
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
