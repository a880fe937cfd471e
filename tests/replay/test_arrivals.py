from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from replay.arrivals import Arrivals, Prefixes


def _arrivals(n: int = 4, **columns: Any) -> Arrivals:
    given: dict[str, Any] = {
        "received_s": np.arange(n) * 0.5,
        "prompt_tokens": np.full(n, 100),
        "output_tokens": np.full(n, 10),
    }
    return Arrivals(**{**given, **columns})


PREFIXES = Prefixes(
    offsets=np.array([0, 2, 2, 3, 5]),
    keys=np.array([7, 8, 9, 7, 10]),
    end_tokens=np.array([16, 64, 32, 16, 48]),
)

OF_THREE = Prefixes(
    offsets=np.zeros(4, dtype=np.int64),
    keys=np.zeros(0, dtype=np.int64),
    end_tokens=np.zeros(0, dtype=np.int64),
)


def test_selected_requests_keep_all_their_columns() -> None:
    """Shared prefixes are kept too, and a request may be selected twice."""
    some = _arrivals(priority=np.arange(4), prefixes=PREFIXES).select(np.array([0, 2, 2, 3]))
    assert some.received_s.tolist() == [0.0, 1.0, 1.0, 1.5]
    assert some.priority is not None
    assert some.priority.tolist() == [0, 2, 2, 3]
    assert some.prefixes is not None
    assert some.prefixes.offsets.tolist() == [0, 2, 3, 4, 6]
    assert some.prefixes.keys.tolist() == [7, 8, 9, 9, 7, 10]
    assert some.prefixes.end_tokens.tolist() == [16, 64, 32, 32, 16, 48]


def test_a_selected_request_follows_a_predecessor_moved_by_the_same_time() -> None:
    loop = _arrivals(after=np.array([-1, 0, 1, 2]))
    at_s = loop.received_s

    def followed(rows: list[int], moved_s: float = 0.0) -> list[int]:
        places = np.array(rows)
        after = loop.select(places, at_s[places] + moved_s).after
        assert after is not None
        found: list[int] = after.tolist()
        return found

    assert followed([0, 1, 2, 3], 5.0) == [-1, 0, 1, 2]
    assert followed([1, 2]) == [-1, 0]
    assert followed([0, 2, 3]) == [-1, -1, 1]
    apart = loop.select(np.array([0, 1]), np.array([at_s[0], at_s[1] + 3.0])).after
    assert apart is not None
    assert apart.tolist() == [-1, -1]


def test_a_repeated_request_is_another_users() -> None:
    """A copied request keeps the common segments, but gets new segments of its own."""
    common = np.array([True, False, False, True, False])
    some = replace(PREFIXES, common=common).select(np.array([0, 0, 3, 0, 3]))
    first, second = some.keys[::2].tolist(), some.keys[1::2].tolist()
    assert first == [7] * 5
    assert len(set(second)) == 5
    again = some.select(np.array([0, 0, 1, 1]))
    assert len(set(again.keys[1::2].tolist())) == 4


def test_requests_of_one_user_share_more_than_common_prefixes() -> None:
    prefixes = Prefixes(
        offsets=np.array([0, 2, 4, 5, 6, 6]),
        keys=np.array([7, 8, 7, 8, 7, 9]),
        end_tokens=np.array([16, 64, 16, 64, 16, 16]),
        common=np.array([True, False, True, False, True, False]),
    )
    one, same, *others = prefixes.users().tolist()
    assert one == same
    assert len({one, *others}) == 4
    assert replace(prefixes, common=None).users().tolist() == [0, 1, 2, 3, 4]


def test_prefixes_are_joined() -> None:
    both = Prefixes.joined([PREFIXES, PREFIXES])
    assert both.offsets.tolist() == [0, 2, 2, 3, 5, 7, 7, 8, 10]
    assert both.keys.tolist() == [7, 8, 9, 7, 10] * 2
    assert both.common is None


def test_a_changed_rate_is_a_changed_column() -> None:
    traffic = _arrivals()
    assert replace(traffic, received_s=traffic.received_s / 2).received_s.tolist() == [
        *(0.0, 0.25, 0.5, 0.75)
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"received_s": np.array([0.0, 2.0, 1.0, 3.0])}, "received_s: .*ascending"),
        ({"received_s": np.array([0.0, 1.0, 2.0, np.nan])}, "received_s: .*finite"),
        ({"prompt_tokens": np.array([1, 0, 1, 1])}, "prompt_tokens: 0; allowed: 1 or more"),
        ({"output_tokens": np.array([1, 1, 1, -2])}, "output_tokens: -2; allowed"),
        ({"priority": np.zeros(3)}, r"priority: shape \(3,\); allowed: \(4,\)"),
        ({"after": np.array([-1, 1, 0, 0])}, "after: 1 for request 1; allowed: below 1"),
        ({"think_s": np.array([0.0, 0.0, -1.0, 0.0])}, "think_s: allowed: 0 or more"),
        ({"prefixes": OF_THREE}, r"prefixes\.offsets: 4; allowed: 5"),
    ],
)
def test_invalid_arrivals_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _arrivals(**columns)


@pytest.mark.parametrize(
    "columns",
    [
        {"end_tokens": np.array([16, 15, 32, 16, 48])},
        {"end_tokens": np.array([16])},
        {"offsets": np.array([0, 2, 2, 3, 4])},
    ],
)
def test_prefixes_that_contradict_themselves_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"prefixes.*(allowed|must)"):
        replace(PREFIXES, **columns)
