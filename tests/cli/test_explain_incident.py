"""`tailspan explain --incident`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from store.alerting.incidents import IncidentRow, keep_evaluation
from store.database import open_database
from tests.chat_objective import chat_openslo

START_S = 1_763_634_000


def an_incident(began_s: int, ended_s: int | None) -> IncidentRow:
    """An incident of `chat` that alerted a minute after it began."""
    return IncidentRow(
        slo="chat",
        severity="page",
        began_unix_s=began_s,
        fired_unix_s=began_s + 60,
        last_unix_s=ended_s or began_s + 60,
        ended_unix_s=ended_s,
        peak_unix_s=began_s + 60,
        peak_burn="20",
        budget_spent=None,
    )


@pytest.fixture
def explain(
    tmp_path: Path, url: str, queued: Callable[[float], None], run: Callable[..., Result]
) -> Callable[..., Result]:
    """Ask about an incident in which requests waited for blocks, or an earlier one."""
    queued(2.0)
    engine = open_database(url)
    rows = [an_incident(START_S - 9_000, START_S - 8_000), an_incident(START_S, START_S + 600)]
    keep_evaluation(engine, "chat", START_S + 600, rows)
    engine.dispose()

    def ask(named: str, *words: str, good: str = "ttft_s <= 0.5 and e2e_s <= 9") -> Result:
        (tmp_path / "chat.yaml").write_text(chat_openslo(good))
        about = ("--incident", named, "--objectives", str(tmp_path / "chat.yaml"))
        return run("explain", *about, *words, window=False)

    return ask


def test_an_incident_is_explained_by_its_objectives_name(explain: Callable[..., Result]) -> None:
    """Its stretch, the latency that grew most of those promised, and the cause."""
    result = explain("chat", "--format", "json")
    assert result.exit_code == 1
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["incident"] == {
        "slo": "chat",
        "severity": "page",
        "began": START_S,
        "fired": START_S + 60,
        "ended": START_S + 600,
    }
    assert told["metric"] == "ttft"
    assert told["window"] == {"from": START_S, "to": START_S + 600}
    assert told["causes"][0]["id"] == "kv_cache_exhausted"


def test_the_text_begins_with_the_incident(explain: Callable[..., Result]) -> None:
    """Which one it was, for there may be several."""
    first, *_ = explain(f"chat@{START_S + 30}", "--metric", "e2e").stdout.splitlines()
    assert first.startswith("chat (page): began 2025-11-20 10:20:00 UTC, alerted")


def test_an_earlier_one_is_found_by_its_time(explain: Callable[..., Result]) -> None:
    """Of whose requests nothing is left: too little data, and no error."""
    result = explain(f"chat@{START_S - 8_500}")
    assert result.exit_code == 0
    assert "Too little data" in result.stdout


@pytest.mark.parametrize(
    ("named", "words", "said"),
    [
        ("nobody", (), "no objective has this name; allowed: chat"),
        (f"chat@{START_S - 100}", (), "none then; its newest began 2025-11-20 10:20:00"),
        ("chat@noon", (), "--incident chat@noon"),
        ("chat", ("--last", "15m"), "--incident and --last are two questions"),
        ("chat", ("--where", "model=m"), "--incident and --where are two questions"),
        ("chat", ("--request", "x"), "--incident and --request are two questions"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    explain: Callable[..., Result], named: str, words: tuple[str, ...], said: str
) -> None:
    """In a sentence that says what can."""
    result = explain(named, *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_an_objective_without_an_incident_says_so(
    url: str, run: Callable[..., Result], fill: Callable[..., None]
) -> None:
    """Nothing has burned."""
    fill()
    result = run("explain", "--incident", "chat", window=False)
    assert result.exit_code == 2
    assert "it has had no incident" in result.stderr


def test_a_promise_of_no_latency_needs_a_metric(explain: Callable[..., Result]) -> None:
    """Which one is then asked of whoever asks."""
    result = explain("chat", good="outcome == 'stop'")
    assert result.exit_code == 2
    assert "--metric ttft|tpot" in result.stderr
    assert explain("chat", "--metric", "ttft", good="outcome == 'stop'").exit_code == 1


def test_objectives_that_are_not_there_are_named(
    run: Callable[..., Result], queued: Callable[[float], None]
) -> None:
    """They decide whether anyone was hurt: without them there is no verdict."""
    queued(0.0)
    result = run("explain", "--objectives", "x.yaml")
    assert result.exit_code == 2
    assert "x.yaml: no such file or folder" in result.stderr


def test_the_verdict_is_the_same_whichever_latency_is_printed(
    explain: Callable[..., Result],
) -> None:
    """One incident, one verdict: the page and the alert take the same sentence."""
    by_default = json.loads(explain("chat", "--format", "json").stdout)
    by_e2e = json.loads(explain("chat", "--metric", "e2e", "--format", "json").stdout)
    assert by_e2e["metric"] == "e2e"
    assert by_default["verdict_sentence"] == by_e2e["verdict_sentence"]
    assert by_default["verdict_sentence"] in explain("chat", "--metric", "e2e").stdout


def test_inside_an_incident_the_time_before_it_is_compared_with(
    explain: Callable[..., Result], run: Callable[..., Result], url: str
) -> None:
    """The stretch just before lies in the incident, too: it would show no difference."""
    explain("chat")
    inside = ("--from", str(START_S + 300), "--to", str(START_S + 600))
    told = json.loads(run("explain", *inside, "--format", "json", window=False).stdout)
    assert told["compared_with"] == "before_incident"
    assert told["baseline"] == {"from": START_S - 300, "to": START_S}
    assert told["verdict"] == "incident"
    assert [each["slo"] for each in told["incidents"]] == ["chat"]


def test_an_unchanged_comparison_inside_an_incident_says_so(
    explain: Callable[..., Result], run: Callable[..., Result]
) -> None:
    """Whoever asks for the stretch just before is told that it is slow all the same."""
    explain("chat")
    inside = ("--from", str(START_S + 300), "--to", str(START_S + 600))
    before = ("--baseline", f"{START_S}/{START_S + 300}")
    result = run("explain", *inside, *before, window=False)
    assert result.exit_code == 0
    assert result.stdout.startswith("Unchanged from the previous 5m")
    assert "Incident chat (page) lasted from 2025-11-20 10:20:00 UTC" in result.stdout
    assert "Nothing" not in result.stdout
