from pathlib import Path

import pytest

from alerts.errors import DocumentError
from analysis.budget.budget import LatencyBudget
from analysis.budget.budget_file import PRESETS, parse_budget, preset, read_budget

TEXT = """
latency: e2e
percentile: p99
total: 2s
layers:
  before: {retrieval: 100ms, tool: 50ms}
  network: 40ms
  queue: 0.5s
  decode: 1s
  after: 10ms
source: an example
"""


def parse(text: str) -> LatencyBudget:
    return parse_budget(text, "budget.yaml", "budget")


def test_a_budget_is_read() -> None:
    budget = parse(TEXT)
    assert (budget.latency, budget.percentile, budget.total_ns) == ("e2e", "p99", 2 * 10**9)
    assert budget.layers_ns == {
        "before.retrieval": 100_000_000,
        "before.tool": 50_000_000,
        "network": 40_000_000,
        "queue": 500_000_000,
        "decode": 10**9,
        "after": 10_000_000,
    }
    assert budget.unassigned_ns == 300_000_000
    assert parse("latency: ttft\ntotal: 100ms\n").unassigned_ns == 10**8


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (("latency: e2e", "latency: tpot"), "budget.yaml:2: latency: 'tpot'; allowed: ttft, e2e"),
        (("percentile: p99", "percentile: 99"), "percentile: '99'; allowed: p50, p90, p95, p99"),
        (("total: 2s", "total: 2"), "total: '2'; allowed: a duration above 0"),
        (("total: 2s", "total: 0s"), "total: '0s'; allowed: a duration above 0"),
        (("total: 2s", "total: 25h"), "total: '25h'; allowed: a duration above 0 and up to 24h"),
        (("total: 2s\n", ""), "total: is missing"),
        (("queue: 0.5s", "queue: much"), "layers.queue: 'much'; allowed: a duration"),
        (("tool:", "tools:"), "layers.before.tools: no such key; allowed: validation, embeddings"),
        (("queue: 0.5s", "queue: 0.801s"), "layers: 2001 ms in all layers; allowed: at most the"),
        (("latency: e2e", "latency: ttft"), "layers.decode: comes after the first token; allowed"),
        (("queue: 0.5s", "queue: [1s]"), "layers.queue: a list or a mapping; allowed: a duration"),
        (
            ("{retrieval: 100ms, tool: 50ms}", "{}"),
            "budget.yaml:6: layers.before: names no operation; allowed: one duration for the layer,"
            " or durations of these operations: valid",
        ),
        (("layers:", "layers: 5\nother:"), "other: no such key"),
    ],
)
def test_an_error_names_the_key_the_value_and_what_is_allowed(
    change: tuple[str, str], values: str
) -> None:
    with pytest.raises(DocumentError) as refused:
        parse(TEXT.replace(*change))
    assert values in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "5", "- a", "a: b: c", "{" * 5_000, "x" * 300_000, "a: 1\n---\nb: 2"]
)
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        parse(text)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "budget.yaml"
    binary.write_bytes(b"\xff\xfe")
    huge = tmp_path / "huge.yaml"
    huge.write_text("a: " + "x" * 3_000_000)
    for path in (tmp_path / "none.yaml", tmp_path, binary, huge):
        with pytest.raises(DocumentError):
            read_budget(path)


@pytest.mark.parametrize(("name", "total_ms"), [("voice", 300), ("chat", 500), ("code", 100)])
def test_each_preset_names_the_source_of_its_total(name: str, total_ms: int) -> None:
    budget = preset(name)
    assert (budget.name, budget.total_ns) == (name, total_ms * 10**6)
    assert budget.source
    assert budget.unassigned_ns > 0
    assert name in PRESETS


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(DocumentError, match="allowed: voice, chat, code"):
        preset("email")
