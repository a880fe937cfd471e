import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine

from analysis import answer_process
from analysis.answer_process import ChildAnswer, Step, answer_in_child
from store.database import open_database
from telemetry import child_process
from telemetry.store_errors import StoreUnavailable

Child = Callable[[str], None]
FOUND = "import pickle, sys\nw = sys.stdout.buffer.write\nb = pickle.dumps('first')\n"
FOUND += "w(b'=' + len(b).to_bytes(8) + b)\nsys.stdout.flush()\n"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    def run(code: str) -> None:
        monkeypatch.setattr(child_process, "command", lambda _: [sys.executable, "-c", code])

    return run


def counted(
    number: int, engine: Engine, progress: Step, compiling: Step
) -> Iterator[tuple[str, int, int, bool]]:
    sys.stdout.write("=a library prints this")
    compiling()
    for each in range(number):
        progress()
        pa.array([each])
        yield engine.dialect.name, each, os.getpid(), "pandas" in sys.modules


def unreadable(_engine: Engine, _progress: Step, _compiling: Step) -> Iterator[str]:
    yield "first"
    raise StoreUnavailable("the database cannot be read: locked")


def failing(_engine: Engine, _progress: Step, _compiling: Step) -> Iterator[str]:
    yield "first"
    raise ValueError("a defect")


def too_large(_engine: Engine, _progress: Step, _compiling: Step) -> Iterator[bytearray]:
    yield bytearray(2 * answer_process.MAX_BYTES)


def test_another_process_sends_its_progress_and_newest_answer_whatever_it_prints(
    engine: Engine,
) -> None:
    steps: list[str] = []
    found = answer_in_child(
        engine,
        partial(counted, 3),
        lambda: steps.append("step"),
        lambda: steps.append("compiling"),
        nice=1,
    )
    assert found.problem is None
    *newest, process, with_pandas = found.answer
    assert newest == ["sqlite", 2]
    assert not with_pandas
    assert process != os.getpid()
    assert steps == ["compiling", "step", "step", "step"]


def test_an_earlier_answer_remains_if_a_later_one_fails(engine: Engine) -> None:
    assert answer_in_child(engine, failing) == ChildAnswer(
        "first", "its process ended with status 1"
    )


def test_too_much_memory_is_a_reason(engine: Engine) -> None:
    assert answer_in_child(engine, too_large).problem == "it needs more than 4 GiB of memory"


def test_a_missing_database_is_a_reason(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/missing.db")
    (tmp_path / "missing.db").unlink()
    problem = answer_in_child(engine, unreadable).problem
    assert str(problem).startswith("there is no database at ")


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import sys; sys.exit(3)", ChildAnswer(None, "its process ended with status 3")),
        (
            "import os; os.kill(os.getpid(), 9)",
            ChildAnswer(None, "its process ended with status -9"),
        ),
        ("print('..', end='')", ChildAnswer(None, "its process ended with status 0")),
        ("print('=cut off', end='')", ChildAnswer(None, "its process ended with status 0")),
        ("print('=' + 9 * 'z', end='')", ChildAnswer(None, "its process ended with status 0")),
        (FOUND + "sys.exit(3)", ChildAnswer("first", "its process ended with status 3")),
        (FOUND + "w(b'=' + bytes(3))", ChildAnswer("first")),
        (FOUND, ChildAnswer("first")),
    ],
)
def test_a_child_that_ends_early_leaves_its_newest_answer(
    engine: Engine, child: Child, code: str, wanted: ChildAnswer
) -> None:
    child(code)
    assert answer_in_child(engine, unreadable) == wanted


def test_a_child_that_hangs_is_ended(
    engine: Engine, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_process, "MAX_S", 1.0)
    child(FOUND + "import time; time.sleep(600)")
    began_s = time.monotonic()
    assert answer_in_child(engine, unreadable) == ChildAnswer("first", "it took longer than 1 s")
    assert time.monotonic() - began_s < 60


def test_a_child_that_cannot_start_is_a_reason(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "command", lambda _: ["/no/such/program"])
    wanted = "its process cannot be started: No such file or directory"
    assert answer_in_child(engine, unreadable) == ChildAnswer(None, wanted)


def test_a_database_that_cannot_be_read_is_told_from_other_reasons(engine: Engine) -> None:
    """A database that is locked now may answer the same question later."""
    found = answer_in_child(engine, unreadable)
    assert found == ChildAnswer("first", "the database cannot be read: locked", unavailable=True)
