"""The findings, as a table for the docs and as lines for a terminal."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from rig.contract.needs import Finding
from rig.contract.reader import SourceTree
from rig.contract.table import CONTRACT, FIRST, HOOKS, LAST, Hook

COMMAND = "python -m rig.contract"

Findings = dict[str, Finding]
"""One version's findings, by `Hook.what`."""


def check(tree: SourceTree) -> Findings:
    """Hold one version's source against the contract.

    Raises:
        ValueError: a module of it cannot be read.
    """
    return {hook.what: hook.need.check(tree, hook.where) for hook in HOOKS}


def broken(findings: Findings) -> list[Hook]:
    """The required hooks that are not as they must be."""
    return [hook for hook in HOOKS if hook.otherwise is None and findings[hook.what].status != "ok"]


def lines(version: str, findings: Findings) -> Iterator[str]:
    """One version's findings for a terminal."""
    differing = [hook for hook in HOOKS if findings[hook.what].status != "ok"]
    yield f"vLLM {version}: {len(HOOKS) - len(differing)} of {len(HOOKS)} hooks as needed"
    for hook in differing:
        finding = findings[hook.what]
        fate = "BROKEN" if hook.otherwise is None else hook.otherwise
        yield f"  {finding.status}: {hook.what} ({finding.detail}): {fate}"


def markdown(found: Mapping[str, Findings], unread: Mapping[str, str]) -> str:
    """The page for the docs.

    Args:
        found: findings by version, ascending.
        unread: for each version that could not be read, why.
    """
    first, last = (f"{major}.{minor}" for major, minor in (FIRST, LAST))
    parts = [
        f"*Made by `{COMMAND}`; not edited by hand.*\n",
        "# vLLM versions\n",
        "`tailspan-vllm` listens at places inside vLLM that are nobody's promise. Here each of "
        f"them is held against the published source of vLLM {first} to {last} (the newest patch "
        "of each), which is read as text and neither installed nor run. `rig/contract/table.py` "
        "says what is needed of each. The last two sections are what the collector reads where "
        "nobody installed it: vLLM's own spans and its /metrics.\n",
        "✓ as needed · – missing or different, and Tailspan does without, as told below · "
        "✗ missing or different, and required\n",
        *(f"- {reason}\n" for reason in unread.values()),
    ]
    for part, hooks in CONTRACT.items():
        parts += [f"## {part}\n", _table(hooks, found)]
    parts += ["## Where versions differ\n", _differences(found)]
    return "\n".join(parts)


def _table(hooks: tuple[Hook, ...], found: Mapping[str, Findings]) -> str:
    rows = [["", *found], ["---", *[":-:"] * len(found)]]
    for hook in hooks:
        marks = [_mark(hook, findings[hook.what]) for findings in found.values()]
        rows.append([f"`{hook.what}`" if _is_a_name(hook.what) else hook.what, *marks])
    return _rows(rows)


def _differences(found: Mapping[str, Findings]) -> str:
    rows = [["hook", "versions", "what", "so"], ["---"] * 4]
    for hook in HOOKS:
        versions = [(version, findings[hook.what]) for version, findings in found.items()]
        for finding, group in groupby(versions, key=lambda each: each[1]):
            if finding.status == "ok":
                continue
            names = [version for version, _ in group]
            span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
            fate = hook.otherwise or "**required**"
            rows.append([hook.what, span, f"`{finding.detail}`", fate])
    return _rows(rows) if len(rows) > 2 else "Nowhere.\n"


def _rows(rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cell.replace('|', '∣') for cell in row)} |\n" for row in rows)


def _mark(hook: Hook, finding: Finding) -> str:
    if finding.status == "ok":
        return "✓"
    return "✗" if hook.otherwise is None else "–"


def _is_a_name(what: str) -> bool:
    return all(part.isidentifier() for part in what.split("."))
