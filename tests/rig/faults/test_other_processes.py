import subprocess
import sys

from rig.faults.other_processes import family, parent_of, worked_s

STAT = "4242 (a (strange) name) S 17 4242 4242 0 -1 4194304 2 0 0 0 150 50 7 8 20 0 1 0 99 1 1"


def test_a_name_with_parentheses_is_no_obstacle() -> None:
    """In /proc/PID/stat, the fields begin after the process name."""
    assert parent_of(STAT) == 17
    assert worked_s(STAT) == 2.0


def test_ours_are_all_that_descend_from_us() -> None:
    assert family({2: 1, 3: 2, 4: 3, 5: 1, 6: 9}, 2) == {2, 3, 4}


def test_cpu_time_of_own_children_is_not_foreign() -> None:
    from rig.faults.other_processes import _read

    child = subprocess.Popen(
        [sys.executable, "-c", "print(sum(range(10**6)), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        before_s = _read()[1]
        child.stdout.readline()
        assert _read()[1] > before_s
    finally:
        child.communicate(b"\n")
