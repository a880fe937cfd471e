from replay.routing import least_outstanding, prefix_aware


def test_the_least_loaded_server_gets_the_request() -> None:
    assert {least_outstanding([4, 1, 3], turn) for turn in range(5)} == {1}


def test_servers_with_equal_load_take_turns() -> None:
    """If servers with equal load did not take turns, the last server of an idle fleet would get no
    requests."""
    assert [least_outstanding([0, 0, 0], turn) for turn in range(4)] == [0, 1, 2, 0]


def test_the_longest_cached_prefix_is_chosen_within_the_slack() -> None:
    """If the load of the server with the longest prefix exceeds the slack, the least loaded server
    gets the request."""
    assert prefix_aware([9, 1, 3], [8, 0, 2], 8, 0) == 0
    assert prefix_aware([9, 1, 3], [8, 0, 2], 7, 0) == 1


def test_without_a_cached_prefix_the_load_decides() -> None:
    assert prefix_aware([2, 1, 3], [0, 0, 0], 12, 0) == 1
    assert prefix_aware([5, 1, 3], [0, 4, 4], 12, 2) == 1
