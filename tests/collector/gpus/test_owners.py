from typing import Any

import pytest

from collector.gpus.configured_owners import configured_owners_of
from collector.gpus.owners import MAX_KNOWN, SILENT_NS, Owners
from collector.gpus.processes import HostProcesses
from collector.gpus.reader import GpuReading
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import Source
from tests.collector.conftest import WallClock
from tests.collector.gpus.conftest import BOOTED_S, NOW_UNIX_NS, TICKS_PER_S, FakeProc
from tests.collector.gpus.making import of_dcgm, reading

HERE = "gpu-host"


@pytest.fixture
def present() -> WallClock:
    return WallClock(NOW_UNIX_NS)


@pytest.fixture
def owners(proc: FakeProc, present: WallClock) -> Owners:
    """Return the owners on a machine with two servers, processes 60 and 80, with one worker
    each."""
    proc.add(60, 50)
    proc.add(61, 60)
    proc.add(80, 50)
    proc.add(81, 80)
    return Owners(HERE, proc.processes(), configured_owners_of([]), present)


def engine(replica: str, process: int, **about: Any) -> EngineSample:
    plain: dict[str, Any] = {
        "engine": 0,
        "at_unix_ns": NOW_UNIX_NS,
        "started_unix_ns": (BOOTED_S + 130) * 10**9,
        "source": Source.INSTRUMENTATION,
    }
    return EngineSample(replica=replica, process=process, **{**plain, **about})


def own(owners: Owners, *gpus: GpuReading) -> dict[str, tuple[str, int | None]]:
    """Return the replica and the number of foreign processes, by GPU."""
    return {each.gpu: (each.replica, each.foreign_processes) for each in owners.assign(gpus)}


def test_a_gpu_belongs_to_the_replica_whose_workers_use_it(owners: Owners) -> None:
    owners.on_stored([], [engine("gpu-host:8000", 60), engine("gpu-host:8001", 80)])
    first, last = owners.assign(
        [reading("GPU-1", processes=frozenset({61})), reading("GPU-2", processes=frozenset({81}))]
    )
    assert isinstance(first, GpuSample)
    assert (first.replica, first.foreign_processes) == ("gpu-host:8000", 0)
    assert (last.replica, last.gpu, last.power_w) == ("gpu-host:8001", "GPU-2", 300.0)


@pytest.mark.parametrize("step_s", [-10, 7_200])
def test_a_server_that_starts_after_a_change_of_the_clock_is_found(
    proc: FakeProc, present: WallClock, step_s: int
) -> None:
    """A server reports its start on the clock of that moment."""
    offsets_ns = [BOOTED_S * 10**9]
    machine = HostProcesses(proc.root, TICKS_PER_S, lambda: offsets_ns[-1])
    owners = Owners(HERE, machine, configured_owners_of([]), present)
    proc.add(60, 50)
    owners.on_stored([], [engine("gpu-host:8000", 60)])
    before = reading("GPU-1", processes=frozenset({60}))
    assert own(owners, before) == {"GPU-1": ("gpu-host:8000", 0)}
    offsets_ns.append((BOOTED_S + step_s) * 10**9)
    proc.add(80, 50)
    started_ns = (BOOTED_S + 100 + step_s) * 10**9
    owners.on_stored([], [engine("gpu-host:8001", 80, started_unix_ns=started_ns)])
    after = reading("GPU-2", processes=frozenset({80}))
    assert own(owners, before, after) == {
        "GPU-1": ("gpu-host:8000", 0),
        "GPU-2": ("gpu-host:8001", 0),
    }


def test_foreign_processes_on_a_gpu_are_counted(owners: Owners, proc: FakeProc) -> None:
    proc.add(62, 60)
    proc.add(99, 50)
    owners.on_stored([], [engine("gpu-host:8000", 60), engine("gpu-host:8001", 80)])
    found = own(owners, reading(processes=frozenset({61, 62, 81, 99})))
    assert found == {"GPU-1": ("gpu-host:8000", 2)}


def test_a_gpu_without_a_replica_has_the_machines_name(owners: Owners) -> None:
    """An idle GPU must stay visible."""
    found = own(
        owners,
        reading("GPU-1"),
        reading("GPU-2", processes=frozenset({61})),
        reading("GPU-3", processes=None),
        of_dcgm("GPU-4", Hostname="there"),
    )
    assert found == {
        "GPU-1": (HERE, 0),
        "GPU-2": (HERE, 1),
        "GPU-3": (HERE, None),
        "GPU-4": ("there", None),
    }


def test_configured_owners_take_precedence(
    proc: FakeProc, present: WallClock, owners: Owners
) -> None:
    configured = Owners(HERE, proc.processes(), configured_owners_of(["GPU-1=mine"]), present)
    configured.on_stored([], [engine("gpu-host:8000", 60)])
    gpu = reading("GPU-1", processes=frozenset({61}))
    assert own(configured, gpu) == {"GPU-1": ("mine", None)}
    configured.on_stored([], [engine("mine", 80)])
    assert own(configured, gpu) == {"GPU-1": ("mine", 1)}


def test_configured_gpus_that_do_not_exist_are_listed(proc: FakeProc, present: WallClock) -> None:
    """A configured GPU that does not exist is probably a spelling mistake."""
    configured = Owners(
        HERE, proc.processes(), configured_owners_of(["GPU-1=a", "7=b", "*=c"]), present
    )
    configured.assign([reading("GPU-1", index=0)])
    assert configured.unseen == ["7"]


def test_an_exporters_labels_name_the_replica(owners: Owners) -> None:
    assert own(owners, of_dcgm(pod="chat-0", Hostname="there")) == {"GPU-1": ("chat-0", None)}


def test_a_pods_server_without_a_name_is_found_by_its_pod(owners: Owners) -> None:
    owners.on_stored([], [engine("chat-0:8000", 1)])
    gpu = of_dcgm(pod="chat-0")
    assert own(owners, gpu) == {"GPU-1": ("chat-0:8000", None)}
    owners.on_stored([], [engine("chat-0:8001", 2)])
    assert own(owners, gpu) == {"GPU-1": ("chat-0", None)}


def test_engines_of_one_launcher_belong_to_its_api_servers(owners: Owners, proc: FakeProc) -> None:
    for launcher in (200, 300):
        proc.add(launcher, 50)
        for process in (launcher + 1, launcher + 2, launcher + 3):
            proc.add(process, launcher)
        proc.add(launcher + 4, launcher + 3)
    owners.on_stored([], [engine("gpu-host:8000", 201), engine("gpu-host:8000", 202)])
    first = reading("GPU-1", processes=frozenset({204}))
    last = reading("GPU-2", processes=frozenset({304}))
    assert own(owners, first, last) == {"GPU-1": ("gpu-host:8000", 0), "GPU-2": (HERE, 1)}


@pytest.mark.parametrize("variable", ["GPU-2", "1", "GPU-2,nonsense,0"])
def test_an_idle_gpu_belongs_to_the_process_that_sees_it(
    owners: Owners, proc: FakeProc, variable: str
) -> None:
    """No process uses the GPU: the model is not loaded yet, or the workers are hidden."""
    proc.add(70, 50, visible=variable)
    owners.on_stored([], [engine("chat-0", 70)])
    gpus = [reading("GPU-1", index=0), reading("GPU-2", index=1)]
    assert own(owners, *gpus) == {"GPU-1": (HERE, 0), "GPU-2": ("chat-0", 0)}


def test_a_gpu_that_two_replicas_see_has_no_owner(owners: Owners, proc: FakeProc) -> None:
    proc.add(70, 50, visible="0")
    proc.add(71, 50, visible="0")
    proc.add(72, 71)
    owners.on_stored([], [engine("chat-0", 70), engine("chat-1", 71)])
    assert own(owners, reading(index=0)) == {"GPU-1": (HERE, 0)}
    gpu = reading(index=0, processes=frozenset({72}))
    assert own(owners, gpu) == {"GPU-1": ("chat-1", 0)}


def test_a_container_has_its_own_gpu_numbers(owners: Owners, proc: FakeProc) -> None:
    """GPU 0 of a container may be GPU 5 of the host."""
    proc.add(70, 50, own_pid=70, visible="0", hostname="chat-0")
    owners.on_stored([], [engine("chat-0", 70)])
    assert own(owners, reading(index=0)) == {"GPU-1": (HERE, 0)}


@pytest.mark.parametrize("about", [{"simulated": True}, {"source": Source.SCRAPE}, {"process": 0}])
def test_processes_of_other_machines_are_ignored(owners: Owners, about: dict[str, Any]) -> None:
    process = about.pop("process", 60)
    owners.on_stored([], [engine("chat-0", process, **about)])
    assert own(owners, reading(processes=frozenset({61}))) == {"GPU-1": (HERE, 1)}


def test_an_engine_that_has_counted_nothing_is_ignored(owners: Owners) -> None:
    owners.on_stored([], [engine("chat-0", 60, started_unix_ns=NOW_UNIX_NS)])
    assert own(owners, reading(processes=frozenset({61}))) == {"GPU-1": ("chat-0", 0)}


def test_a_silent_engine_is_forgotten(owners: Owners, present: WallClock) -> None:
    """After 5 min without samples, another process may have the engine's process id."""
    owners.on_stored([], [engine("chat-0", 60)])
    present.unix_ns += SILENT_NS
    assert own(owners, reading(processes=frozenset({61}))) == {"GPU-1": (HERE, 1)}


def test_invented_engines_do_not_fill_the_memory(owners: Owners, present: WallClock) -> None:
    owners.on_stored([], [engine(f"r{n}", 10_000 + n) for n in range(MAX_KNOWN)])
    owners.on_stored([], [engine("chat-0", 60)])
    assert len(owners._engines) == MAX_KNOWN
    present.unix_ns += SILENT_NS
    owners.on_stored([], [engine("chat-0", 60)])
    assert own(owners, reading(processes=frozenset({61}))) == {"GPU-1": ("chat-0", 0)}


def alone(proc: FakeProc) -> Owners:
    """Return the owners that an agent finds without engine samples."""
    return Owners(HERE, proc.processes(), configured_owners_of([]), receives_engines=False)


def test_an_agent_names_a_gpu_by_where_its_server_listens(owners: Owners, proc: FakeProc) -> None:
    proc.listens(60, 8000)
    proc.listens(80, 8001)
    proc.listens(61, 29_500)  # a port between a server's workers
    proc.add(99, 50)
    gpus = [
        reading("GPU-1", processes=frozenset({61})),
        reading("GPU-2", processes=frozenset({81, 99})),
        reading("GPU-3", processes=frozenset({99})),
    ]
    assert own(alone(proc), *gpus) == {
        "GPU-1": ("gpu-host:8000", 0),
        "GPU-2": ("gpu-host:8001", 1),
        "GPU-3": (HERE, 1),
    }
    assert own(owners, gpus[0]) == {"GPU-1": (HERE, 1)}  # engine samples decide


def test_an_agent_names_a_container_by_its_own_name(proc: FakeProc) -> None:
    proc.add(60, 50, own_pid=1, hostname="chat-0")
    proc.add(61, 60, own_pid=7, hostname="chat-0")
    proc.listens(60, 8000)
    assert own(alone(proc), reading(processes=frozenset({61}))) == {"GPU-1": ("chat-0:8000", 0)}


@pytest.mark.parametrize("ports", [(), (8000, 9000)], ids=["no port", "two ports"])
def test_without_a_certain_replica_an_agent_uses_the_machines_name(
    proc: FakeProc, ports: tuple[int, ...]
) -> None:
    proc.add(60, 50)
    proc.add(61, 60)
    proc.listens(60, *ports)
    proc.add(70, 50, program="/usr/bin/raylet")
    proc.add(71, 70)
    proc.listens(70, 8000)
    gpus = [
        reading("GPU-1", processes=frozenset({61})),
        reading("GPU-2", processes=frozenset({71})),
    ]
    assert own(alone(proc), *gpus) == {"GPU-1": (HERE, 1), "GPU-2": (HERE, 1)}
