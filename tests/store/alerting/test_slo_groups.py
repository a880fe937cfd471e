from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Engine

from store.alerting.slo_counts import (
    CountedRange,
    SloCount,
    mark_counts_incomplete,
    read_counted_range,
    read_counts,
    store_counts,
)
from store.alerting.slo_groups import active_hours, give_slots, groups_with_slots, merge_group

OTHER, ACME, LATE = ".b3RoZXI", ".YWNtZQ", ".bGF0ZQ"
HOUR_S = 3600


def count(until_s: int, group: str, good: int = 1) -> SloCount:
    return SloCount(until_s, good, 0, 0, 0, 0, group=group)


def keep(engine: Engine, counts: Sequence[SloCount], from_s: int, to_s: int, *groups: str) -> bool:
    return store_counts(
        engine,
        "a",
        counts,
        CountedRange(0, to_s),
        since=read_counted_range(engine, f"a{OTHER}") or CountedRange(0, from_s),
        groups=[OTHER, *groups],
    )


def test_each_group_is_kept_under_its_own_key(engine: Engine) -> None:
    assert groups_with_slots(engine, "a") == {}
    give_slots(engine, "a", {OTHER: CountedRange(0, 0), ACME: CountedRange(0, 0)})
    give_slots(engine, "ab", {LATE: CountedRange(0, 0)})
    assert keep(engine, [count(60, OTHER, 5), count(60, ACME, 7)], 0, 60, ACME)
    assert groups_with_slots(engine, "a") == {OTHER: CountedRange(0, 60), ACME: CountedRange(0, 60)}
    (kept,) = read_counts(engine, f"a{ACME}", 0, 60)
    assert (kept.good, kept.group) == (7, "")


def test_a_group_that_gets_its_slot_later_is_counted_from_then_on(engine: Engine) -> None:
    give_slots(engine, "a", {OTHER: CountedRange(0, 0), ACME: CountedRange(0, 0)})
    keep(engine, [], 0, 60, ACME)
    give_slots(engine, "a", {LATE: CountedRange(60, 60)})
    keep(engine, [], 60, 120, ACME, LATE)
    assert groups_with_slots(engine, "a")[LATE] == CountedRange(60, 120)
    keep(engine, [], 120, 180, ACME)
    keep(engine, [count(240, LATE)], 180, 240, ACME, LATE)
    assert groups_with_slots(engine, "a")[LATE] == CountedRange(180, 240)


def test_all_groups_are_counted_again_from_the_same_instant(engine: Engine) -> None:
    give_slots(engine, "a", {OTHER: CountedRange(0, 0), ACME: CountedRange(0, 0)})
    keep(engine, [count(60, ACME), count(60, OTHER)], 0, 120, ACME)
    mark_counts_incomplete(engine, 45, [])
    assert set(groups_with_slots(engine, "a").values()) == {CountedRange(0, 45)}
    keep(engine, [count(60, ACME, 9)], 45, 120, ACME)
    assert [each.good for each in read_counts(engine, f"a{ACME}", 0, 120)] == [9]
    assert read_counts(engine, f"a{OTHER}", 0, 120) == []


def test_hours_with_requests_are_counted_not_requests(engine: Engine) -> None:
    give_slots(engine, "a", {OTHER: CountedRange(0, 0), ACME: CountedRange(0, 0)})
    counts = [
        *(count(each, ACME, 100) for each in (15, HOUR_S, HOUR_S + 15, 5 * HOUR_S)),
        replace(count(15, LATE), simulated=True),
    ]
    keep(engine, counts, 0, 6 * HOUR_S, ACME, LATE)
    assert active_hours(engine, "a", [ACME, LATE, OTHER], 0) == {ACME: 3, LATE: 1, OTHER: 0}
    assert active_hours(engine, "a", [ACME], HOUR_S) == {ACME: 2}


def test_a_group_that_loses_its_slot_is_merged_into_other(engine: Engine) -> None:
    give_slots(engine, "a", {OTHER: CountedRange(0, 0), ACME: CountedRange(0, 0)})
    counts = [count(15, ACME, 3), count(15, OTHER, 4), count(30, ACME, 5), count(45, OTHER, 6)]
    keep(engine, [*counts, replace(count(30, ACME, 1), simulated=True)], 0, 60, ACME)
    merge_group(engine, "a", ACME, OTHER)
    assert groups_with_slots(engine, "a") == {OTHER: CountedRange(0, 60)}
    assert read_counts(engine, f"a{ACME}", 0, 60) == []
    found = [(each.until_unix_s, each.good) for each in read_counts(engine, f"a{OTHER}", 0, 60)]
    assert found == [(15, 7), (30, 5), (30, 1), (45, 6)]
