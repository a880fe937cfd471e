from pathlib import Path

from rig.contract.needs import OK, Finding
from rig.contract.report import COMMAND, Findings, broken, lines, markdown
from rig.contract.table import CONTRACT, HOOKS

DOCS = Path(__file__).resolve().parents[3] / "docs" / "vllm-versions.md"
REQUIRED = next(hook for hook in HOOKS if hook.otherwise is None)
OPTIONAL = next(hook for hook in HOOKS if hook.otherwise is not None)


def _findings(**unlike: Finding) -> Findings:
    return {hook.what: unlike.get(hook.what, OK) for hook in HOOKS}


def _lacking(what: str) -> Findings:
    return _findings(**{what: Finding("missing", "no such thing")})


def test_only_a_required_hook_breaks_a_version() -> None:
    """An optional one has its fate, and that is that."""
    assert broken(_lacking(REQUIRED.what)) == [REQUIRED]
    assert broken(_lacking(OPTIONAL.what)) == []
    assert broken(_findings()) == []


def test_a_terminal_is_told_what_differs_and_what_becomes_of_it() -> None:
    """And of the rest only how many."""
    told = list(lines("0.12.0", _lacking(OPTIONAL.what)))
    assert told[0] == f"vLLM 0.12.0: {len(HOOKS) - 1} of {len(HOOKS)} hooks as needed"
    assert told[1:] == [f"  missing: {OPTIONAL.what} (no such thing): {OPTIONAL.otherwise}"]
    assert "BROKEN" in list(lines("0.12.0", _lacking(REQUIRED.what)))[1]


def test_neighbouring_versions_that_differ_alike_share_a_line() -> None:
    """From the first to the last of them; a gap makes two."""
    lacking, whole = _lacking(REQUIRED.what), _findings()
    page = markdown({"0.12.0": lacking, "0.13.0": lacking, "0.14.0": whole, "0.15.0": lacking}, {})
    differences = page.partition("## Where versions differ")[2]
    assert f"| {REQUIRED.what} | 0.12.0 to 0.13.0 | `no such thing` | **required** |" in differences
    assert f"| {REQUIRED.what} | 0.15.0 | `no such thing` | **required** |" in differences


def test_a_version_that_was_not_read_is_named() -> None:
    """A column that is not there is not a column of ticks."""
    assert "- vLLM 0.15: no source published." in markdown(
        {"0.12.0": _findings()}, {"0.15": "vLLM 0.15: no source published."}
    )


def test_the_docs_are_the_contracts() -> None:
    """Their rows are the table's; when they are not, run the command that the first line names."""
    page = DOCS.read_text(encoding="utf-8")
    assert page.splitlines()[0] == f"*Made by `{COMMAND}`; not edited by hand.*"
    rows = [
        line.split(" | ")[0].strip("| `")
        for line in page.splitlines()
        if "✓" in line or "–" in line
    ]
    told = [row for row in rows if row in {hook.what for hook in HOOKS}]
    assert told[: len(HOOKS)] == [hook.what for hook in HOOKS]
    assert all(f"## {part}\n" in page for part in CONTRACT)
