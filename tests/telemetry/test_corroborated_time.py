from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.corroborated_time import (
    GAP_NS,
    PACE,
    SECOND_NS,
    STEP_NS,
    STEPOUT_NS,
    WITNESS_NS,
    CorroboratedClock,
)

MINUTE_NS = 60 * SECOND_NS
DAY_NS = 86_400 * SECOND_NS
START_NS = 1_790_000_000 * SECOND_NS


@dataclass
class World:
    """A simulated true time, and a system clock that differs from it by `error_ns`."""

    true_ns: int = START_NS
    error_ns: int = 0
    clock: CorroboratedClock = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.clock = CorroboratedClock(self.system_ns, lambda: self.true_ns - START_NS + 7)

    def system_ns(self) -> int:
        return self.true_ns + self.error_ns

    def wait(self, ns: int) -> None:
        self.true_ns += ns

    def right(self, *senders: str) -> None:
        for each in senders:
            self.clock.record_message(each, self.true_ns - SECOND_NS)

    def same(self, *senders: str) -> None:
        for each in senders:
            self.clock.record_message(each, self.system_ns() - SECOND_NS)

    @property
    def off_ns(self) -> int:
        return self.clock() - self.true_ns


@pytest.fixture
def world() -> World:
    return World()


def test_the_system_clock_is_followed_while_it_does_not_jump(world: World) -> None:
    for _ in range(100):
        world.wait(SECOND_NS)
        world.error_ns += STEP_NS // 2
        assert world.clock() == world.system_ns()
        assert world.clock.ahead_ns == 0


@pytest.mark.parametrize("jump_ns", [8 * DAY_NS, -8 * DAY_NS, 30 * MINUTE_NS, -30 * MINUTE_NS])
@pytest.mark.parametrize("senders", ["none", "same", "right"])
def test_a_jump_of_two_minutes_has_no_lasting_effect(
    world: World, jump_ns: int, senders: str
) -> None:
    add = {"none": lambda *_: None, "same": world.same, "right": world.right}[senders]
    add("a", "b")
    world.error_ns = jump_ns
    for _ in range(8):
        add("a", "b")
        assert world.off_ns == 0
        assert world.clock.ahead_ns == jump_ns
        world.wait(15 * SECOND_NS)
    world.error_ns = 0
    assert world.off_ns == 0
    assert world.clock.ahead_ns == 0


def test_a_jump_that_witnesses_contradict_is_ignored_while_it_lasts(world: World) -> None:
    """A sender on the same machine cannot show that the clock is wrong, because it has the same
    clock."""
    world.right("a")
    world.same("b", "c", "d")
    world.error_ns = 8 * DAY_NS
    for _ in range(100):
        world.wait(STEPOUT_NS)
        world.right("a")
        world.same("b", "c", "d")
        assert world.off_ns == 0
        assert world.clock.shares("b")
        assert not world.clock.shares("a")


def test_a_jump_that_witnesses_confirm_is_accepted_at_once() -> None:
    """Either the machine had been paused, or its clock has been corrected."""
    world = World(error_ns=-40 * MINUTE_NS)
    world.right("a", "b")
    world.error_ns = 0
    assert world.off_ns == -40 * MINUTE_NS
    world.right("a")
    assert world.off_ns == 0


def test_a_jump_without_witnesses_is_accepted_after_five_minutes(world: World) -> None:
    """A corrected clock must not be treated as wrong for ever."""
    world.same("a")
    world.error_ns = DAY_NS
    world.same("a")
    assert world.off_ns == 0
    world.wait(STEPOUT_NS - 1)
    assert world.off_ns == 0
    world.wait(2)
    assert world.off_ns == DAY_NS
    assert world.clock.ahead_ns == 0


def test_a_sender_that_is_new_since_the_jump_has_no_vote(world: World) -> None:
    """Senders can invent names."""
    world.right("a")
    world.error_ns = DAY_NS
    world.right("a")
    world.same(*(f"made-up-{number}" for number in range(50)))
    assert world.off_ns == 0


def test_invented_names_do_not_evict_a_witness_during_a_jump(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.corroborated_time.MAX_SENDERS", 20)
    world.right("a")
    world.error_ns = DAY_NS
    world.right("a")
    world.right(*(f"made-up-{number}" for number in range(40)))
    world.wait(2 * STEPOUT_NS)
    assert world.off_ns == 0


def test_a_witness_that_falls_silent_counts_for_an_hour(world: World) -> None:
    world.right("a")
    world.error_ns = DAY_NS
    world.right("a")
    world.wait(WITNESS_NS - 1)
    assert world.off_ns == 0
    world.wait(2)
    assert world.off_ns == DAY_NS


@pytest.mark.parametrize("error_ns", [8 * DAY_NS, -8 * DAY_NS, -30 * MINUTE_NS])
def test_at_the_start_senders_that_continue_stored_times_are_trusted(error_ns: int) -> None:
    world = World(error_ns=error_ns)
    world.clock.begin(START_NS - 10 * MINUTE_NS, START_NS - 10 * MINUTE_NS)
    assert world.off_ns == error_ns
    world.right("a", "b")
    assert abs(world.off_ns) <= SECOND_NS
    world.wait(MINUTE_NS)
    world.error_ns = 0
    assert world.off_ns == 0
    assert world.clock.ahead_ns == 0


@pytest.mark.parametrize("down_ns", [0, GAP_NS, 8 * DAY_NS, 400 * DAY_NS])
def test_at_the_start_a_long_downtime_is_accepted(world: World, down_ns: int) -> None:
    world.clock.begin(START_NS - down_ns, None)
    assert world.off_ns == 0
    world.right("a")
    world.wait(MINUTE_NS)
    world.clock.record_message("replays", START_NS - down_ns)
    assert world.off_ns == 0


def test_one_slow_sender_at_the_start_is_ignored(world: World) -> None:
    world.clock.begin(START_NS - 120 * MINUTE_NS, None)
    world.clock.record_message("slow", START_NS - 8 * 60 * MINUTE_NS)
    assert world.off_ns == 0
    world.clock.record_message("replays", START_NS - 119 * MINUTE_NS)
    world.right("a")
    assert world.off_ns == 0


def test_without_jumps_deletion_follows_the_clock(world: World) -> None:
    world.clock.begin(START_NS - MINUTE_NS, START_NS - MINUTE_NS)
    world.wait(MINUTE_NS)
    assert world.clock.deletable_unix_ns == world.true_ns
    world.wait(MINUTE_NS)
    assert world.clock.deletable_unix_ns == world.true_ns


def test_a_start_eight_days_ahead_deletes_no_faster_than_real_time() -> None:
    down_ns = 8 * DAY_NS
    world = World(true_ns=START_NS + down_ns)
    at_unix_ns = START_NS
    for _ in range(8):
        world.restart()
        world.clock.begin(at_unix_ns, at_unix_ns)
        assert world.clock.deletable_unix_ns == at_unix_ns
        world.wait(DAY_NS)
        assert world.clock.deletable_unix_ns == at_unix_ns + PACE * DAY_NS
        at_unix_ns = world.clock.deletable_unix_ns
    assert at_unix_ns == world.true_ns


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10 * MINUTE_NS),
            st.sampled_from([0, 0, 0, 1, 3600, 691_200, -1800, -691_200, 10**8]),
            st.sampled_from(["", "right", "same", "new"]),
        ),
        max_size=40,
    )
)
def test_for_any_clock_time_for_deletion_advances_slowly(steps: list[tuple[int, int, str]]) -> None:
    """The time for deletion never decreases, and advances at most twice as fast as real time."""
    world = World()
    before_ns, deletable_ns, waited_ns = world.clock(), world.clock.deletable_unix_ns, 0
    for wait_ns, error_s, who in steps:
        world.wait(wait_ns)
        waited_ns += wait_ns
        world.error_ns = error_s * SECOND_NS
        if who == "right":
            world.right("a")
        elif who == "same":
            world.same("b")
        elif who == "new":
            world.same(f"new-{waited_ns}")
        present_ns = world.clock()
        followed = world.clock.ahead_ns == 0
        assert followed == (present_ns == world.system_ns())
        assert followed or present_ns == before_ns + wait_ns
        before_ns = present_ns
        assert deletable_ns <= world.clock.deletable_unix_ns
        deletable_ns = world.clock.deletable_unix_ns
        assert deletable_ns <= START_NS + PACE * waited_ns
    # After a long period with the correct time, the earlier jump has no effect.
    world.error_ns = 0
    world.right("a", "b")
    world.wait(WITNESS_NS + STEPOUT_NS)
    assert world.off_ns == 0
    assert world.clock.ahead_ns == 0
