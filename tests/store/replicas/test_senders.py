from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from store.replicas.senders import names
from telemetry.engines import EngineSample
from telemetry.window import Window

Samples = Callable[..., EngineSample]
Write = Callable[..., None]
NS = 10**9
START_S = 1_790_000_000
WINDOW = Window(START_S * NS, (START_S + 600) * NS)


@pytest.fixture
def send(write: Write, sample_row: Samples) -> Callable[..., None]:
    """Commits the samples of one process, 10 s apart."""

    def make(
        from_s: int, to_s: int, process: int = 1, *, counts: bool = True, **about: int
    ) -> None:
        write(
            *(
                sample_row(
                    replica="vllm-0",
                    process=process,
                    started_unix_ns=(START_S + from_s - 3) * NS,
                    at_unix_ns=(START_S + at) * NS,
                    busy_s_total=0.1 * at if counts else None,
                    **about,
                )
                for at in range(from_s, to_s, 10)
            )
        )

    return make


@pytest.mark.parametrize("process", [1, 2])
def test_shared_names_are_found(engine: Engine, send: Callable[..., None], process: int) -> None:
    send(0, 600)
    send(205, 600, process)
    found = names(engine, WINDOW)
    (shared,) = found.shared
    assert (found.engines, shared.replica, shared.engine) == (1, "vllm-0", 0)
    assert [each.process for each in shared.servers] == [1, process]


@pytest.mark.parametrize("process", [1, 2])
def test_a_restart_is_one_server(engine: Engine, send: Callable[..., None], process: int) -> None:
    """The old process may answer its last requests for up to a minute."""
    send(0, 300)
    send(245, 600, process)
    assert names(engine, WINDOW).shared == []


def test_api_servers_are_one_server(engine: Engine, send: Callable[..., None]) -> None:
    send(0, 600)
    send(1, 600, 2, counts=False)
    send(2, 600, 3, engine=1)
    found = names(engine, WINDOW)
    assert (found.engines, found.shared) == (2, [])


def test_older_clashes_do_not_count(engine: Engine, send: Callable[..., None]) -> None:
    send(-600, -60)
    send(-595, -55, 2)
    assert names(engine, WINDOW).engines == 0
