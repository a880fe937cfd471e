import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from alerts.objectives import Objective
from alerts.openslo.reader import load
from analysis.incident import IncidentVerdict, incident_verdict
from analysis.incident_answer import store_verdict
from diagnosis.explanation import Explanation, Replay, ShareMethod
from store.alerting.incidents import store_evaluation
from store.database import open_database
from telemetry.incidents import IncidentRow
from tests.chat_objective import chat_openslo

Run = Callable[..., Result]


START_S = 1_763_634_000
BOTH = "ttft_s <= 0.5 and e2e_s <= 1"
"""A condition on two latencies. The incident's requests miss both."""


def an_incident(began_s: int, ended_s: int | None) -> IncidentRow:
    """Return an incident of `chat` that alerted one minute after its start."""
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


def store_incidents(url: str) -> None:
    engine = open_database(url)
    rows = [an_incident(START_S - 9_000, START_S - 8_000), an_incident(START_S, START_S + 600)]
    store_evaluation(engine, "chat", START_S + 600, rows)
    engine.dispose()


@pytest.fixture
def explain(
    tmp_path: Path, url: str, queued: Callable[[float], None], run: Run
) -> Callable[..., Result]:
    """Return a function that explains one of two incidents.

    In the later incident, requests waited for blocks. The earlier incident has no stored requests.
    """
    queued(2.0)
    store_incidents(url)

    def ask(named: str, *words: str, good: str = "ttft_s <= 0.5 and e2e_s <= 9") -> Result:
        (tmp_path / "chat.yaml").write_text(chat_openslo(good))
        about = ("--incident", named, "--objectives", str(tmp_path / "chat.yaml"))
        return run("explain", *about, *words, window=False)

    return ask


def test_an_incident_is_explained_by_its_name_or_time(explain: Callable[..., Result]) -> None:
    result = explain("chat", "--format", "json")
    assert result.exit_code == 1
    shown: dict[str, Any] = json.loads(result.stdout)
    assert shown["incident"] == {
        "slo": "chat",
        "severity": "page",
        "began": START_S,
        "fired": START_S + 60,
        "ended": START_S + 600,
    }
    assert shown["metric"] == "ttft"
    assert shown["window"] == {"from": START_S, "to": START_S + 600}
    assert shown["causes"][0]["id"] == "kv_cache_exhausted"
    first, *_ = explain(f"chat@{START_S + 30}", "--metric", "e2e").stdout.splitlines()
    assert first.startswith("chat (page): began 2025-11-20 10:20:00 UTC, alerted")
    earlier = explain(f"chat@{START_S - 8_500}")  # its requests are not stored
    assert earlier.exit_code == 0
    assert "Too little data" in earlier.stdout


@pytest.mark.parametrize(
    ("named", "words", "wanted"),
    [
        ("nobody", (), "no objective has this name; allowed: chat"),
        (
            f"chat@{START_S - 100}",
            (),
            "no incident at this time; the newest incidents began 2025-11-20 10:20:00",
        ),
        ("chat@noon", (), "--incident chat@noon"),
        ("chat", ("--last", "15m"), "--incident and --last exclude each other"),
        ("chat", ("--where", "mood=good"), "unknown label 'mood'"),
        ("chat", ("--baseline", "5m"), "--baseline '5m' overlaps the window"),
        ("chat", ("--baseline", "x"), "must be FROM/TO, or a duration"),
        ("chat", ("--request", "x"), "--incident and --request exclude each other"),
    ],
)
def test_a_wrong_incident_is_refused(
    explain: Callable[..., Result], named: str, words: tuple[str, ...], wanted: str
) -> None:
    result = explain(named, *words)
    assert result.exit_code == 2
    assert wanted in " ".join(result.stderr.split())


def test_a_baseline_and_a_filter_may_be_chosen(explain: Callable[..., Result]) -> None:
    where = ("--where", "tenant=globex", "--baseline", "10m", "--format", "json")
    shown = json.loads(explain("chat", *where).stdout)
    assert shown["where"] == {"tenant": "globex"}
    assert shown["baseline"] == {"from": START_S - 600, "to": START_S}
    assert shown["verdict_sentence"].startswith("Probably most of the growth of TTFT: ")


def test_a_filter_that_the_objective_excludes_is_refused(
    explain: Callable[..., Result], tmp_path: Path, run: Run
) -> None:
    explain("chat")
    file = tmp_path / "chat.yaml"
    file.write_text(chat_openslo("ttft_s <= 0.5", where="tenant == 'acme'"))
    named = ("--incident", "chat", "--objectives", str(file), "--where", "tenant=globex")
    result = run("explain", *named, window=False)
    assert result.exit_code == 2
    shown = " ".join(result.stderr.split())
    assert "--where tenant=globex: chat counts only requests with tenant=acme" in shown


def test_an_objective_without_an_incident_and_missing_objectives_are_reported(
    run: Run, fill: Callable[..., None]
) -> None:
    fill()
    for words, wanted in (
        (("--incident", "chat"), "this objective has had no incident"),
        (("--objectives", "x.yaml"), "x.yaml: no such file or folder"),
    ):
        result = run("explain", *words, window=False)
        assert result.exit_code == 2
        assert wanted in result.stderr


def test_an_objective_without_a_latency_needs_a_metric(explain: Callable[..., Result]) -> None:
    result = explain("chat", good="outcome == 'stop'")
    assert result.exit_code == 2
    assert "--metric ttft|tpot" in result.stderr
    assert explain("chat", "--metric", "ttft", good="outcome == 'stop'").exit_code == 1


def test_the_verdict_is_the_same_whichever_latency_is_printed(
    explain: Callable[..., Result],
) -> None:
    by_default = json.loads(explain("chat", "--format", "json").stdout)
    by_e2e = json.loads(explain("chat", "--metric", "e2e", "--format", "json").stdout)
    assert by_e2e["metric"] == "e2e"
    assert by_default["verdict_sentence"] == by_e2e["verdict_sentence"]
    assert by_default["verdict_sentence"] in explain("chat", "--metric", "e2e").stdout


def test_within_an_incident_the_baseline_is_the_time_before_it(
    explain: Callable[..., Result], run: Run
) -> None:
    explain("chat")
    inside = ("--from", str(START_S + 300), "--to", str(START_S + 600))
    shown = json.loads(run("explain", *inside, "--format", "json", window=False).stdout)
    assert shown["compared_with"] == "before_incident"
    assert shown["baseline"] == {"from": START_S - 300, "to": START_S}
    assert shown["verdict"] == "incident"
    assert [each["slo"] for each in shown["incidents"]] == ["chat"]
    # A range inside the incident is unchanged, but still slow.
    result = run("explain", *inside, "--baseline", f"{START_S}/{START_S + 300}", window=False)
    assert result.exit_code == 0
    assert result.stdout.startswith("Unchanged from the previous 5m")
    assert "Incident chat (page) lasted from 2025-11-20 10:20:00 UTC" in result.stdout
    assert "Nothing" not in result.stdout


def replayed(each: Explanation, share: float) -> Explanation:
    causes = (
        [replace(each.causes[0], share=share, low=share - 0.1, high=1.0)] if each.causes else []
    )
    shown = Replay(9, 0.1, 0.1, 2.0, 2.0)
    return replace(each, causes=causes, method=ShareMethod.COUNTERFACTUAL, replay=shown)


@pytest.fixture(scope="module")
def computed(
    queued_databases: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Objective, IncidentVerdict]:
    """Return the objective that counts both latencies, and the answer of its later incident."""
    folder = tmp_path_factory.mktemp("computed")
    (folder / "chat.yaml").write_text(chat_openslo(BOTH))
    (objective,) = load([folder / "chat.yaml"]).objectives
    shutil.copy(queued_databases(2.0), folder / "tailspan.db")
    url = f"sqlite:///{folder}/tailspan.db"
    store_incidents(url)
    engine = open_database(url)
    incident = an_incident(START_S, START_S + 600)
    found = incident_verdict(engine, objective, incident, START_S + 600)
    engine.dispose()
    assert found is not None
    return objective, found


@pytest.fixture
def stored(
    explain: Callable[..., Result], computed: tuple[Objective, IncidentVerdict], url: str
) -> IncidentVerdict:
    """Store an answer with replayed shares in the database of `explain`."""
    objective, found = computed
    verdict = IncidentVerdict(
        replayed(found.first, 0.89), tuple(replayed(each, 0.7) for each in found.others)
    )
    engine = open_database(url)
    store_verdict(engine, objective, an_incident(START_S, START_S + 600), verdict, START_S + 660)
    engine.dispose()
    return verdict


def test_a_stored_answer_is_printed_with_its_time(
    explain: Callable[..., Result], stored: IncidentVerdict
) -> None:
    shown = explain("chat", "--format", "json", good=BOTH)
    found: dict[str, Any] = json.loads(shown.stdout)
    assert found["stored"] == {"computed": START_S + 660, "phase": "ended", "version": 1}
    assert found["verdict_sentence"] == stored.sentence
    assert found["causes"][0]["share"] == 0.89
    lines = explain("chat", good=BOTH).stdout.splitlines()
    assert lines[1] == f"Verdict: {stored.sentence}"
    assert lines[2] == (
        "Computed at 2025-11-20 10:31:00 UTC from the requests of 2025-11-20 10:20:00 UTC to"
        " 2025-11-20 10:30:00 UTC."
    )
    assert lines[3].startswith("Also: 70% [60% to 100%] of the growth of E2E: ")
    assert not shown.stderr, "nothing is replayed"
    other = json.loads(explain("chat", "--metric", "e2e", "--format", "json", good=BOTH).stdout)
    assert other["causes"][0]["share"] == 0.7


def test_a_page_is_explained_instead_of_its_ticket(
    explain: Callable[..., Result], stored: IncidentVerdict, url: str
) -> None:
    page = an_incident(START_S, START_S + 600)
    engine = open_database(url)
    ticket = replace(page, severity="ticket", fired_unix_s=START_S + 120, ended_unix_s=None)
    store_evaluation(engine, "chat", START_S + 600, [ticket])
    engine.dispose()
    for named in ("chat", f"chat@{START_S + 120}"):
        found = json.loads(explain(named, "--format", "json", good=BOTH).stdout)
        assert found["incident"]["severity"] == "page"
        assert found["verdict_sentence"] == stored.sentence


def test_an_answer_whose_replay_took_too_long_is_computed_now(
    explain: Callable[..., Result],
    computed: tuple[Objective, IncidentVerdict],
    stored: IncidentVerdict,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective, _ = computed
    engine = open_database(url)
    first = replace(
        stored.first,
        method=ShareMethod.ACCOUNTING,
        replay=None,
        not_replayed="it took longer than 9 s",
    )
    incident = an_incident(START_S, START_S + 600)
    store_verdict(engine, objective, incident, replace(stored, first=first), START_S + 660)
    engine.dispose()
    monkeypatch.setattr(
        "cli.commands.explain.replayed", lambda _engine, each, *_: replayed(each, 0.8)
    )
    found = json.loads(explain("chat", "--format", "json", good=BOTH).stdout)
    assert found["stored"] is None
    assert found["method"] == "counterfactual"
    assert found["verdict_sentence"].startswith("80% [70% to 100%] of the growth of TTFT: ")


def test_no_rows_are_joined_beside_a_stored_answer(
    explain: Callable[..., Result], stored: IncidentVerdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("cli.commands.explain.explain_joined", lambda *given: asked.append(given))
    explain("chat", good=BOTH)
    assert not asked
    explain("chat", "--fast", good=BOTH)
    assert len(asked) == 1


def test_another_question_is_computed_now(
    explain: Callable[..., Result], stored: IncidentVerdict
) -> None:
    for words in (("--fast",), ("--where", "tenant=globex"), ("--baseline", "10m")):
        found = json.loads(explain("chat", *words, "--format", "json", good=BOTH).stdout)
        assert found["stored"] is None
        assert found["causes"][0]["share"] != 0.89
    # No answer is stored for this latency.
    found = json.loads(explain("chat", "--metric", "queue", "--format", "json", good=BOTH).stdout)
    assert found["verdict_sentence"] == stored.sentence
    assert found["window"] == {"from": START_S, "to": START_S + 600}
    assert found["metric"] == "queue"


def test_the_other_latencies_have_shares_by_replay_too(
    explain: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cli.commands.explain.replayed", lambda _engine, each, *_: replayed(each, 0.8)
    )
    lines = explain("chat", good=BOTH).stdout.splitlines()
    assert lines[1].startswith("Verdict: 80% [70% to 100%] of the growth of TTFT: ")
    assert lines[2].startswith("Also: 80% [70% to 100%] of the growth of E2E: ")
    assert (
        explain("chat", "--fast", good=BOTH)
        .stdout.splitlines()[2]
        .startswith("Also: Probably most ")
    )
