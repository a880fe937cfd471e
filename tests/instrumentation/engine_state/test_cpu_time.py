import os
import sys
import time
from pathlib import Path

import pytest
from tailspan_vllm import names
from tailspan_vllm.engine_state.cpu_time import Processors, own_age_s

TICKS = os.sysconf("SC_CLK_TCK")
CORE = "77 (VLLM::EngineCore) S) S 1 1 1 0 -1 4194304 9 0 0 0 {user} {system} 5 5 20 0 9 0 1 2 3\n"


def write_stat(proc: Path, stat: str, core: str) -> None:
    (proc / "77").mkdir(exist_ok=True)
    (proc / "stat").write_text(f"{stat}\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5 0 0\n")
    (proc / "77" / "stat").write_text(core)


def test_totals_count_since_the_first_look(tmp_path: Path) -> None:
    """Busy time excludes idle time and disk waits. The kernel counts guest time as user time."""
    own_cpu_s = iter((5.0, 7.5))
    seen = Processors(tmp_path, own_cpu_s=lambda: next(own_cpu_s))
    write_stat(tmp_path, "cpu  1000 10 100 5000 70 1 2 30 8 0", CORE.format(user=300, system=40))
    first = seen.host() | seen.core(77)
    assert first == dict.fromkeys(
        (names.PROCESS_CPU_TIME, names.HOST_BUSY_TIME, names.HOST_STEAL_TIME, names.CORE_CPU_TIME),
        0.0,
    )
    write_stat(tmp_path, "cpu  1200 10 150 9000 99 2 4 33 9 0", CORE.format(user=350, system=60))
    assert seen.host() | seen.core(77) == {
        names.PROCESS_CPU_TIME: 2.5,
        names.HOST_BUSY_TIME: pytest.approx(253 / TICKS),
        names.HOST_STEAL_TIME: pytest.approx(3 / TICKS),
        names.CORE_CPU_TIME: pytest.approx(70 / TICKS),
    }


@pytest.mark.parametrize("stat", ["", "cpu  1 2 3", "cpu  a b c d e f g h"])
def test_unreported_values_are_absent(tmp_path: Path, stat: str) -> None:
    seen = Processors(tmp_path)
    assert list(seen.host()) == [names.PROCESS_CPU_TIME]
    assert seen.core(77) == seen.core(None) == {}
    write_stat(tmp_path, stat, "77 (")
    assert list(seen.host()) == [names.PROCESS_CPU_TIME]
    assert seen.core(77) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")
def test_the_real_files_read_as_expected() -> None:
    seen = Processors()
    seen.host()
    seen.core(os.getpid())
    sum(number * number for number in range(3_000_000))
    reported = seen.host() | seen.core(os.getpid())
    assert reported[names.HOST_BUSY_TIME] > 0
    assert reported[names.CORE_CPU_TIME] == pytest.approx(
        reported[names.PROCESS_CPU_TIME], abs=0.05
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")
def test_the_age_of_a_process_starts_at_its_creation(tmp_path: Path) -> None:
    assert 0 <= (own_age_s() or -1.0) < time.clock_gettime(time.CLOCK_BOOTTIME)
    assert own_age_s(tmp_path) is None
    (tmp_path / "self").mkdir()
    begun = round((time.clock_gettime(time.CLOCK_BOOTTIME) - 100) * TICKS)
    fields = " ".join(["S", *["0"] * 18, str(begun), "0"])
    (tmp_path / "self" / "stat").write_text(f"7 (a ) name) {fields}\n")
    assert own_age_s(tmp_path) == pytest.approx(100, abs=10)
    (tmp_path / "self" / "stat").write_text("7 (x) S 0\n")
    assert own_age_s(tmp_path) is None
