"""The overview's notice on replicas that hang."""

import time
from collections.abc import Callable
from pathlib import Path

from store.database import open_database
from store.replicas.hung_replicas import Hung
from store.writer import Writer
from telemetry.engines import EngineSample
from tests.ui.opening import Open, markup
from ui.views.overview.hung_engines import MOST, sentence


def test_the_notice_gives_replica_requests_and_time() -> None:
    """One request is singular; a name is escaped."""
    assert sentence([Hung("X", 12, 99.0, 95.0)]) == (
        "Replica X has <b>12 requests</b> running and has made no step for <b>1 min 35 s</b>."
        " SLOs count these requests as bad once they exceed a latency threshold, the others when"
        " they end."
    )
    assert "Replica &lt;b&gt; has <b>1 request</b>" in sentence([Hung("<b>", 1, 99.0, 95.0)])


def test_the_notice_is_bounded() -> None:
    """The others are counted."""
    said = sentence([Hung(f"r{number}", 1, 99.0, 95.0) for number in range(MOST + 2)])
    assert said.count("Replica ") == MOST
    assert "Other replicas that hang: 2." in said


def sample(now_ns: int, step_age_s: float) -> EngineSample:
    """A replica that has requests."""
    return EngineSample(
        replica="X",
        engine=0,
        process=1,
        at_unix_ns=now_ns,
        started_unix_ns=now_ns - 10**12,
        in_flight=12,
        oldest_request_age_s=99.0,
        last_step_age_s=step_age_s,
    )


def test_the_overview_shows_it_while_a_replica_hangs(page: Open, tmp_path: Path) -> None:
    """And not while it steps."""
    shown: Callable[[float], str] = lambda age_s: markup(page(_kept(tmp_path, age_s)))  # noqa: E731
    assert "Replica X has <b>12 requests</b> running and has made no step for" in shown(95.0)
    assert "has made no step" not in shown(0.5)


def _kept(folder: Path, step_age_s: float) -> str:
    url = f"sqlite:///{folder / f'{step_age_s}.db'}"
    engine = open_database(url)
    with Writer(engine) as writer:
        writer.submit([], [sample(time.time_ns(), step_age_s)]).result()
    engine.dispose()
    return url
