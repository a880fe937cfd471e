"""Each GPU with its replica, and who else is at work on it."""

from collections.abc import Callable
from typing import Any

import pytest

from collector.gpus.configured_owners import configured_owners_of
from collector.gpus.owners import MOST_KNOWN, SILENT_NS, Owners
from collector.gpus.reader import GpuReading
from telemetry.engines import EngineSample
from telemetry.gpus import GpuSample
from telemetry.requests import Source
from tests.collector.gpus.conftest import BOOTED_S, NOW_UNIX_NS, FakeProc
from tests.collector.gpus.making import of_dcgm, told

HERE = "gpu-host"
Tell = Callable[..., None]


class Present:
    """A present that a test moves."""

    def __init__(self) -> None:
        self.unix_ns = NOW_UNIX_NS

    def __call__(self) -> int:
        """The present."""
        return self.unix_ns


@pytest.fixture
def present() -> Present:
    """The present."""
    return Present()


@pytest.fixture
def owners(proc: FakeProc, present: Present) -> Owners:
    """Of a machine on which two servers run: 60 and 80, each with a worker."""
    proc.add(60, 50)
    proc.add(61, 60)
    proc.add(80, 50)
    proc.add(81, 80)
    return Owners(HERE, proc.processes(), configured_owners_of([]), present)


def engine(replica: str, process: int, **about: Any) -> EngineSample:
    """A sample of an engine that began with its process."""
    plain: dict[str, Any] = {
        "engine": 0,
        "at_unix_ns": NOW_UNIX_NS,
        "started_unix_ns": (BOOTED_S + 130) * 10**9,
        "source": Source.INSTRUMENTATION,
    }
    return EngineSample(replica=replica, process=process, **{**plain, **about})


def own(owners: Owners, *gpus: GpuReading) -> dict[str, tuple[str, int | None]]:
    """Replica and foreign processes, by GPU."""
    return {each.gpu: (each.replica, each.foreign_processes) for each in owners.assign(gpus)}


def test_a_gpu_is_the_replicas_whose_workers_compute_on_it(owners: Owners) -> None:
    """By their ancestors; what a driver told is in the sample."""
    owners.on_stored([], [engine("gpu-host:8000", 60), engine("gpu-host:8001", 80)])
    first, last = owners.assign(
        [told("GPU-1", processes=frozenset({61})), told("GPU-2", processes=frozenset({81}))]
    )
    assert isinstance(first, GpuSample)
    assert (first.replica, first.foreign_processes) == ("gpu-host:8000", 0)
    assert (last.replica, last.gpu, last.power_w) == ("gpu-host:8001", "GPU-2", 300.0)


def test_who_else_computes_on_it_is_counted(owners: Owners, proc: FakeProc) -> None:
    """Another replica's, and a stranger's; it is the one's with most of them."""
    proc.add(62, 60)
    proc.add(99, 50)
    owners.on_stored([], [engine("gpu-host:8000", 60), engine("gpu-host:8001", 80)])
    found = own(owners, told(processes=frozenset({61, 62, 81, 99})))
    assert found == {"GPU-1": ("gpu-host:8000", 2)}


def test_a_gpu_of_nobody_is_told_under_its_machine(owners: Owners) -> None:
    """So that an idle one stays in sight; whoever computes there is no replica's."""
    found = own(
        owners,
        told("GPU-1"),
        told("GPU-2", processes=frozenset({61})),
        told("GPU-3", processes=None),
        of_dcgm("GPU-4", Hostname="there"),
    )
    assert found == {
        "GPU-1": (HERE, 0),
        "GPU-2": (HERE, 1),
        "GPU-3": (HERE, None),
        "GPU-4": ("there", None),
    }


def test_what_the_user_says_wins(proc: FakeProc, present: Present, owners: Owners) -> None:
    """Over processes; whose of a replica that named none are foreign nobody can say."""
    said = Owners(HERE, proc.processes(), configured_owners_of(["GPU-1=mine"]), present)
    said.on_stored([], [engine("gpu-host:8000", 60)])
    gpu = told("GPU-1", processes=frozenset({61}))
    assert own(said, gpu) == {"GPU-1": ("mine", None)}
    said.on_stored([], [engine("mine", 80)])
    assert own(said, gpu) == {"GPU-1": ("mine", 1)}


def test_claims_of_gpus_that_nobody_told_of_are_known(proc: FakeProc, present: Present) -> None:
    """Most likely they are misspelt."""
    said = Owners(HERE, proc.processes(), configured_owners_of(["GPU-1=a", "7=b", "*=c"]), present)
    said.assign([told("GPU-1", index=0)])
    assert said.unseen == ["7"]


def test_labels_of_an_exporter_tell_whose_it_is(owners: Owners) -> None:
    """A pod's name, unless told otherwise."""
    assert own(owners, of_dcgm(pod="chat-0", Hostname="there")) == {"GPU-1": ("chat-0", None)}


def test_a_pods_server_that_nobody_named_is_known_by_its_pod(owners: Owners) -> None:
    """It is `pod:port`; of two in one pod neither is sure, and the label stays."""
    owners.on_stored([], [engine("chat-0:8000", 1)])
    gpu = of_dcgm(pod="chat-0")
    assert own(owners, gpu) == {"GPU-1": ("chat-0:8000", None)}
    owners.on_stored([], [engine("chat-0:8001", 2)])
    assert own(owners, gpu) == {"GPU-1": ("chat-0", None)}


def test_engines_beside_several_api_servers_are_theirs(owners: Owners, proc: FakeProc) -> None:
    """Children of one launcher; those of another launcher are another's."""
    for launcher in (200, 300):
        proc.add(launcher, 50)
        for process in (launcher + 1, launcher + 2, launcher + 3):
            proc.add(process, launcher)
        proc.add(launcher + 4, launcher + 3)
    owners.on_stored([], [engine("gpu-host:8000", 201), engine("gpu-host:8000", 202)])
    first = told("GPU-1", processes=frozenset({204}))
    last = told("GPU-2", processes=frozenset({304}))
    assert own(owners, first, last) == {"GPU-1": ("gpu-host:8000", 0), "GPU-2": (HERE, 1)}


@pytest.mark.parametrize("variable", ["GPU-2", "1", "GPU-2,nonsense,0"])
def test_an_idle_gpu_is_whose_process_sees_it(
    owners: Owners, proc: FakeProc, variable: str
) -> None:
    """A server that has not loaded its model yet, or whose workers are hidden."""
    proc.add(70, 50, visible=variable)
    owners.on_stored([], [engine("chat-0", 70)])
    gpus = [told("GPU-1", index=0), told("GPU-2", index=1)]
    assert own(owners, *gpus) == {"GPU-1": (HERE, 0), "GPU-2": ("chat-0", 0)}


def test_a_gpu_that_two_replicas_see_is_nobodys(owners: Owners, proc: FakeProc) -> None:
    """Until one of them computes on it."""
    proc.add(70, 50, visible="0")
    proc.add(71, 50, visible="0")
    proc.add(72, 71)
    owners.on_stored([], [engine("chat-0", 70), engine("chat-1", 71)])
    assert own(owners, told(index=0)) == {"GPU-1": (HERE, 0)}
    gpu = told(index=0, processes=frozenset({72}))
    assert own(owners, gpu) == {"GPU-1": ("chat-1", 0)}


def test_what_a_container_sees_is_numbered_by_itself(owners: Owners, proc: FakeProc) -> None:
    """Its 0 may be our 5."""
    proc.add(70, 50, own_pid=70, visible="0", hostname="chat-0")
    owners.on_stored([], [engine("chat-0", 70)])
    assert own(owners, told(index=0)) == {"GPU-1": (HERE, 0)}


@pytest.mark.parametrize("about", [{"simulated": True}, {"source": Source.SCRAPE}, {"process": 0}])
def test_processes_that_are_none_of_this_machine_are_not_noted(
    owners: Owners, about: dict[str, Any]
) -> None:
    """A simulation's is the simulator's; a scrape knows of none."""
    process = about.pop("process", 60)
    owners.on_stored([], [engine("chat-0", process, **about)])
    assert own(owners, told(processes=frozenset({61}))) == {"GPU-1": (HERE, 1)}


def test_a_start_that_is_none_says_nothing(owners: Owners) -> None:
    """An engine that has counted nothing yet begins with every sample."""
    owners.on_stored([], [engine("chat-0", 60, started_unix_ns=NOW_UNIX_NS)])
    assert own(owners, told(processes=frozenset({61}))) == {"GPU-1": ("chat-0", 0)}


def test_a_silent_engine_is_forgotten(owners: Owners, present: Present) -> None:
    """Its number may be another process' by then."""
    owners.on_stored([], [engine("chat-0", 60)])
    present.unix_ns += SILENT_NS
    assert own(owners, told(processes=frozenset({61}))) == {"GPU-1": (HERE, 1)}


def test_made_up_engines_do_not_fill_the_memory(owners: Owners, present: Present) -> None:
    """And make way for true ones once they are silent."""
    owners.on_stored([], [engine(f"r{n}", 10_000 + n) for n in range(MOST_KNOWN)])
    owners.on_stored([], [engine("chat-0", 60)])
    assert len(owners._engines) == MOST_KNOWN
    present.unix_ns += SILENT_NS
    owners.on_stored([], [engine("chat-0", 60)])
    assert own(owners, told(processes=frozenset({61}))) == {"GPU-1": ("chat-0", 0)}


def alone(proc: FakeProc) -> Owners:
    """As an agent has it: nobody tells it of engines."""
    return Owners(HERE, proc.processes(), configured_owners_of([]), receives_engines=False)


def test_an_agent_names_a_gpu_by_where_its_server_listens(owners: Owners, proc: FakeProc) -> None:
    """As a server calls itself unless somebody named it; who else is there is counted."""
    proc.listens(60, 8000)
    proc.listens(80, 8001)
    proc.listens(61, 29_500)  # what workers of one server talk over
    proc.add(99, 50)
    gpus = [
        told("GPU-1", processes=frozenset({61})),
        told("GPU-2", processes=frozenset({81, 99})),
        told("GPU-3", processes=frozenset({99})),
    ]
    assert own(alone(proc), *gpus) == {
        "GPU-1": ("gpu-host:8000", 0),
        "GPU-2": ("gpu-host:8001", 1),
        "GPU-3": (HERE, 1),
    }
    assert own(owners, gpus[0]) == {"GPU-1": (HERE, 1)}  # where engines are heard of, they say


def test_an_agent_names_a_container_by_its_own_name(proc: FakeProc) -> None:
    """A pod's, whose server listens in its own network."""
    proc.add(60, 50, own_pid=1, hostname="chat-0")
    proc.add(61, 60, own_pid=7, hostname="chat-0")
    proc.listens(60, 8000)
    assert own(alone(proc), told(processes=frozenset({61}))) == {"GPU-1": ("chat-0:8000", 0)}


@pytest.mark.parametrize("ports", [(), (8000, 9000)], ids=["nobody listens", "which of two"])
def test_an_agent_that_is_not_sure_leaves_a_gpu_under_the_machines_name(
    proc: FakeProc, ports: tuple[int, ...]
) -> None:
    """As it does where what listens is another program, or not ours to see."""
    proc.add(60, 50)
    proc.add(61, 60)
    proc.listens(60, *ports)
    proc.add(70, 50, program="/usr/bin/raylet")
    proc.add(71, 70)
    proc.listens(70, 8000)
    gpus = [told("GPU-1", processes=frozenset({61})), told("GPU-2", processes=frozenset({71}))]
    assert own(alone(proc), *gpus) == {"GPU-1": (HERE, 1), "GPU-2": (HERE, 1)}
