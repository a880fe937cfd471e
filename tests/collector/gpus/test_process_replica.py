import pytest

from collector.gpus.process_replica import EngineProcess, by_process, host_of, replica_of
from collector.gpus.processes import HostProcess

HERE = "gpu-host"
BEGAN_S = 1_795_000_100.0
COUNTS_NS = round((BEGAN_S + 30) * 1e9)


def process(
    pid: int,
    own_pid: int | None = None,
    began_s: float | None = BEGAN_S,
    program: str | None = "python",
) -> HostProcess:
    """Return a process; `own_pid` is its id in its container."""
    return HostProcess(pid, own_pid or pid, own_pid is not None, began_s, program)


WORKER = [process(90), process(80), process(70), process(50)]


def whose(
    ancestry: list[HostProcess], *known: EngineProcess, container: str | None = None
) -> str | None:
    return replica_of(ancestry, by_process(known), HERE, lambda _pid: container)


@pytest.mark.parametrize("pid", [90, 80, 70])
def test_an_ancestor_that_an_engine_named_is_the_replicas(pid: int) -> None:
    """A worker uses the GPU, and its ancestor, the API server, sends the samples."""
    assert whose(WORKER, EngineProcess("gpu-host:8000", pid, COUNTS_NS)) == "gpu-host:8000"


def test_another_machines_process_of_that_number_is_not_meant() -> None:
    """A replica's default name contains its host. If the name is configured, the start time must
    match."""
    assert whose(WORKER, EngineProcess("other:8000", 70, COUNTS_NS)) is None
    assert whose(WORKER, EngineProcess("chat-0", 70, COUNTS_NS)) == "chat-0"
    long_ago = round((BEGAN_S - 60) * 1e9)
    much_later = round((BEGAN_S + 7_200) * 1e9)
    assert whose(WORKER, EngineProcess("chat-0", 70, long_ago)) is None
    assert whose(WORKER, EngineProcess("chat-0", 70, much_later)) is None
    assert whose(WORKER, EngineProcess("chat-0", 70, None)) == "chat-0"


def test_a_name_with_this_host_precedes_a_configured_name() -> None:
    known = [EngineProcess("chat-0", 70, COUNTS_NS), EngineProcess("gpu-host:8000", 70, COUNTS_NS)]
    assert whose(WORKER, *known) == "gpu-host:8000"


def test_two_matching_configured_names_give_no_replica() -> None:
    """A GPU without an owner is better than a GPU with the wrong owner."""
    known = [EngineProcess("chat-0", 70, COUNTS_NS), EngineProcess("chat-1", 70, COUNTS_NS)]
    assert whose(WORKER, *known) is None


LAUNCHED = [process(90), process(80), process(60), process(50, program="bash")]
"""A worker, its engine core, the launcher of several API servers, and a shell."""


@pytest.mark.parametrize("own_pid", [None, 7], ids=["here", "in a container"])
def test_an_engine_has_the_replica_of_its_sibling_api_server(own_pid: int | None) -> None:
    """A launcher of several API servers sends no samples, but its other children do."""
    servers = [process(70, own_pid), process(71, own_pid and 8), process(80)]
    known = by_process([EngineProcess("chat-0", own_pid or 70, COUNTS_NS)])

    def children(pid: int) -> list[HostProcess]:
        return servers if pid == 60 else []

    assert replica_of(LAUNCHED, known, HERE, lambda _pid: None, children) == "chat-0"


@pytest.mark.parametrize(
    ("launcher", "sister"),
    [
        (process(60, program="bash"), process(70)),
        (process(60, program=None), process(70)),
        (process(60), process(70, program="node")),
        (process(60), process(70, began_s=BEGAN_S + 600)),
        (process(60), process(70, began_s=None)),
    ],
    ids=["a shell", "hidden", "another program", "another time", "unknown time"],
)
def test_a_shell_as_common_parent_makes_no_sibling(
    launcher: HostProcess, sister: HostProcess
) -> None:
    """A shell or a supervisor may be the parent of two servers."""
    known = by_process([EngineProcess("chat-0", 70, None)])
    chain = [process(90), process(80), launcher]

    def children(pid: int) -> list[HostProcess]:
        return [sister] if pid == 60 else []

    assert replica_of(chain, known, HERE, lambda _pid: None, children) is None


def test_a_server_in_the_agents_container_may_be_process_1() -> None:
    """In the agent's pod, the server is process 1, and the host name is the pod's name."""
    assert (
        whose([process(90), process(1)], EngineProcess("gpu-host:8000", 1, COUNTS_NS))
        == "gpu-host:8000"
    )


@pytest.mark.parametrize("replica", ["chat-0", "chat-0:8000"])
def test_a_container_is_known_by_its_name(replica: str) -> None:
    """A pod's host name is the pod's name, and the server in each pod is process 1."""
    pod = [process(900, 12), process(880, 1), process(860)]
    known = [
        EngineProcess(replica, 1, COUNTS_NS),
        EngineProcess(replica.replace("0", "1", 1), 1, COUNTS_NS),
    ]
    assert whose(pod, *known, container="chat-0") == replica
    assert whose(pod, *known, container="chat-2") is None
    assert whose(pod, *known, container=None) is None


def test_without_a_container_name_only_a_configured_name_matches() -> None:
    pod = [process(900, 12), process(880, 1)]
    assert whose(pod, EngineProcess("chat-0", 1, COUNTS_NS)) == "chat-0"
    assert whose(pod, EngineProcess("elsewhere:8000", 1, COUNTS_NS)) is None


@pytest.mark.parametrize(
    ("replica", "host"),
    [("gpu-host:8000", "gpu-host"), ("fd00::1:80", "fd00::1"), ("chat-0", None), (":8000", None)],
)
def test_a_default_name_has_its_host(replica: str, host: str | None) -> None:
    assert host_of(replica) == host
