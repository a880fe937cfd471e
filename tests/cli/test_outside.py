import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import tailspan
from cli.questions.explorer_pages import page_link
from tests.analysis.outside.probed import (
    LENGTH_S,
    NS,
    REFUSED,
    START_S,
    failed,
    probe,
    probes,
    rows,
    store,
)
from tests.conftest import a_request

RANGE = ("--from", str(START_S), "--to", str(START_S + LENGTH_S))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database with probes. Tests only read it."""
    found = f"sqlite:///{tmp_path_factory.mktemp('probed')}/probed.db"
    results = list(probes())
    store(found, results, rows(a_request, results))
    return found


def _run(url: str, *words: str) -> Result:
    return CliRunner().invoke(
        tailspan, ["outside", *words, "--database", url], catch_exceptions=False
    )


def test_regions_and_endpoints_are_rows(url: str) -> None:
    printed = _run(url, *RANGE).stdout
    lines = [each.split() for each in printed.splitlines()]
    assert ["claude", "tiny", "ap-south", "managed", "120", "110", "91.7%"] in [
        each[:7] for each in lines
    ]
    assert f"claude tiny ap-south: 10 failed, last 2025-11-20 11:19:30: connect: {REFUSED}" in (
        printed
    )
    assert "mean wait" in printed
    assert "network P50" in printed
    assert "-50.0 ms to -50.0 ms  faster" in printed


def test_the_json_is_one_object_with_phases_that_sum(url: str) -> None:
    found = json.loads(_run(url, *RANGE, "--format", "json", "--where", "region=eu-west").stdout)
    assert [each["endpoint"] for each in found["places"]] == ["chat", "claude"]
    for each in found["places"]:
        known = [value for value in each["phases_s"].values() if value is not None]
        assert sum(known) == pytest.approx(each["wait_mean_s"])


def test_answers_of_a_gateways_cache_have_their_own_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    store(url, [probe(n, at_unix_ns=(START_S + n) * NS, outcome="cached") for n in range(12)], [])
    printed = _run(url, *RANGE).stdout
    assert "answered by a gateway's cache: 12, not in the latencies" in printed


def test_without_probes_it_says_what_to_do(url: str, tmp_path: Path) -> None:
    earlier = _run(url, "--from", "1763000000", "--to", "1763000900")
    assert "The latest was due 2025-11-20 11:19:30 UTC" in earlier.stderr
    nothing = _run(url, *RANGE, "--where", "region=moon\x1b[31m").stderr
    assert nothing == "No probe has ever matched these filters.\n"
    empty = f"sqlite:///{tmp_path}/empty.db"
    store(empty, [], [])
    assert "Start a prober: tailspan probe probes.yaml" in _run(empty, *RANGE).stderr
    assert "\x1b" not in nothing
    wrong = _run(url, "--where", "tenant=acme")
    assert wrong.exit_code == 2
    assert "allowed: region, endpoint, model" in wrong.stderr


def test_hostile_names_and_reasons_are_printed_as_plain_text(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/h.db"
    hostile = "\x1b]0;owned\x07" + "w" * 200
    bad = failed(1, at_unix_ns=START_S * NS, region=hostile, endpoint=hostile, error=hostile)
    store(url, [bad], [])
    printed = _run(url, *RANGE).stdout
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) < 500


def test_a_link_opens_the_page_with_the_same_filters() -> None:
    given = [("from", "1"), ("to", "2"), ("where", "region=eu")]
    link = page_link("http://127.0.0.1:8501", "outside", given)
    assert link == "http://127.0.0.1:8501/?page=outside&from=1&to=2&region=eu"
    assert page_link("http://127.0.0.1:8501", "outside", [*given, ("where", "model=m")]) is None
