import time
from collections.abc import Callable
from pathlib import Path

from telemetry.engines import EngineSample
from telemetry.hung_replicas import HungReplica
from tests.ui.conftest import fill
from tests.ui.opening import Open, markup
from ui.views.overview.hung_engines import MAX_LISTED, sentence


def test_the_notice_gives_replica_requests_and_time() -> None:
    assert sentence([HungReplica("X", 12, 99.0, 95.0)]) == (
        "Replica X has <b>12 requests</b> running, but its engine has taken no step for"
        " <b>1 min 35 s</b>. SLOs count a running request as bad as soon as it exceeds a"
        " latency threshold. Other requests count when they end."
    )
    assert "Replica &lt;b&gt; has <b>1 request</b>" in sentence([HungReplica("<b>", 1, 99.0, 95.0)])


def test_the_notice_is_bounded() -> None:
    text = sentence([HungReplica(f"r{number}", 1, 99.0, 95.0) for number in range(MAX_LISTED + 2)])
    assert text.count("Replica ") == MAX_LISTED
    assert "Other replicas that hang: 2." in text


def sample(now_ns: int, step_age_s: float) -> EngineSample:
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


def test_the_overview_shows_a_current_hang(page: Open, tmp_path: Path) -> None:
    shown: Callable[[float], str] = lambda age_s: markup(page(_kept(tmp_path, age_s)))  # noqa: E731
    assert (
        "Replica X has <b>12 requests</b> running, but its engine has taken no step for"
        in shown(95.0)
    )
    assert "has taken no step" not in shown(0.5)


def _kept(folder: Path, step_age_s: float) -> str:
    url = f"sqlite:///{folder / f'{step_age_s}.db'}"
    fill(url, [], [sample(time.time_ns(), step_age_s)])
    return url
