from hypothesis import given
from hypothesis import strategies as st

from alerts.evaluation.group_slots import Candidates, assign_slots
from alerts.groups import Group


def candidates(active: dict[str, int], requests: int = 1) -> Candidates:
    made = Candidates()
    for name, hours in active.items():
        for hour in range(hours):
            made.add((name,), hour, requests)
    return made


def test_a_free_slot_goes_to_the_group_that_was_active_for_longest() -> None:
    names = {f"x{at}": 1 for at in range(100)} | {"acme": 5, "globex": 3}
    separate = assign_slots(candidates(names), {}, slots=3).added
    assert separate[:2] == (("acme",), ("globex",))
    assert len(separate) == 3


def test_of_equally_active_groups_that_with_more_requests_gets_the_slot() -> None:
    made = candidates({f"x{at}": 1 for at in range(100)})
    made.add(("tenant",), 0, 40)
    assert assign_slots(made, {}, slots=1).added == (("tenant",),)


def test_a_burst_of_new_names_gets_no_slot() -> None:
    burst = candidates({f"x{at}": 1 for at in range(100_000)})
    assert assign_slots(burst, {("quiet",): 1, ("acme",): 100}, slots=2).added == ()


def test_a_tenant_replaces_a_name_that_was_active_once() -> None:
    held: dict[Group, int] = {("x1",): 1, ("x2",): 1, ("acme",): 100}
    found = assign_slots(candidates({"globex": 3}), held, slots=3)
    assert found.added == (("globex",),)
    assert found.removed in ((("x1",),), (("x2",),))


def test_a_tenant_of_working_days_keeps_its_slot_over_the_weekend() -> None:
    """A new group needs more than twice the active hours of the group that it replaces."""
    day = candidates({"new": 24})
    assert assign_slots(day, {("acme",): 12}, slots=1).removed == ()
    assert assign_slots(day, {("acme",): 11}, slots=1).removed == (("acme",),)


def test_a_fixed_group_keeps_its_slot() -> None:
    found = assign_slots(candidates({"new": 24}), {("acme",): 0}, frozenset({("acme",)}), slots=1)
    assert (found.added, found.removed) == ((), ())


def test_memory_is_bounded_and_active_groups_stay() -> None:
    made = Candidates(most=100)
    for hour in range(3):
        made.add(("acme",), hour, 10)
        for at in range(50_000):
            made.add((f"x{hour}-{at}",), hour, 1)
    assert len(made) <= 200
    assert made.ranked()[0] == ("acme",)
    made.forget(2)
    assert made.hours(("acme",)) == 1


@given(
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 24), max_size=30),
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 168), max_size=8),
)
def test_there_are_never_more_groups_than_slots(
    active: dict[str, int], held: dict[str, int]
) -> None:
    known: dict[Group, int] = {(name,): hours for name, hours in held.items()}
    made = candidates({name: hours for name, hours in active.items() if (name,) not in known})
    found = assign_slots(made, known, slots=5)
    assert len(known) - len(found.removed) + len(found.added) <= 5
    if found.added and found.removed:
        least = min(made.hours(each) for each in found.added)
        assert least > 2 * max(known[each] for each in found.removed)
