"""The documentation's links, commands and variables."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.main import COMMANDS, tailspan

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    {
        page
        for pattern in ("*.md", "*/README.md", "*/*/README.md", "docs/*.md")
        for page in ROOT.glob(pattern)
        if not page.relative_to(ROOT).parts[0].startswith((".", "build", "var"))
    }
)
FENCED = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"^(?:\$ )?make ([a-z-]+)", re.MULTILINE)
PROGRAM = re.compile(
    r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?python"
    r" (?:-m ((?:rig|tests|benchmarks|store|cli|telemetry)[.\w]*)|(\w+/\S+\.py))",
    re.MULTILINE,
)
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?tailspan (\w.*)$", re.MULTILINE)
VARIABLE = re.compile(r"\b(?:OTEL|TAILSPAN|GRAFANA)_[A-Z_]*[A-Z]\b")
PRODUCT = (
    *("alerts", "analysis", "cli", "collector", "cost", "dashboards", "diagnosis", "exporters"),
    *("probe", "replay", "roofline", "simulator", "store", "telemetry", "ui"),
    "instrumentation/tailspan_vllm",
)
INTERNAL = {
    "TAILSPAN_LINK",
    "TAILSPAN_OTLP_SCHEME",
    "TAILSPAN_SIMULATED_PAST",
    "TAILSPAN_START",
}
"""Variables that Tailspan only sets for its child processes."""


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Every link and anchor has a target, and the table of contents has every page."""
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-c", "docs"]
    # The site's own theme takes half of the time, and adds no links or anchors to check.
    sphinx += ["-D", "html_theme=basic"]
    done = subprocess.run(
        [*sphinx, "-b", "html", "-d", tmp_path / "trees", ".", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--keep-rows" in (tmp_path / "site" / "docs" / "command-reference.html").read_text()


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in FENCED.findall(page.read_text(encoding="utf-8")):
            for line in COMMAND.findall(block):
                yield str(page.relative_to(ROOT)), line


@pytest.mark.parametrize(("page", "line"), list(commands()))
def test_every_command_line_is_valid(page: str, line: str) -> None:
    """The command and its options exist, and options have their values."""
    words = shlex.split(line.replace("…", ""), comments=True)
    command: click.Command = tailspan
    context = click.Context(command)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command, context = found, click.Context(found, parent=context)
    if "--help" not in words:
        command.make_parser(context).parse_args(words)


def test_every_target_and_program_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    shown: set[str] = set()
    for page in PAGES:
        for block in FENCED.findall(page.read_text(encoding="utf-8")):
            shown |= {f"make {name}" for name in TARGET.findall(block)}
            for module, file in PROGRAM.findall(block):
                path = ROOT / (file or module.replace(".", "/"))
                assert path.is_dir() or path.with_suffix(".py").exists(), f"{page}: {path}"
                shown.add(str(path))
    assert len(shown) > 10
    assert {each for each in shown if each.startswith("make ")} <= {f"make {t}" for t in targets}


def test_every_command_is_shown() -> None:
    """The page has an example of each command."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [verb for verb in COMMANDS if f"$ tailspan {verb}" not in page] == []


def test_every_variable_is_explained() -> None:
    """The table has every variable that the code reads."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    explained = set(VARIABLE.findall(page))
    in_code: set[str] = set()
    for folder in PRODUCT:
        for module in (ROOT / folder).rglob("*.py"):
            in_code |= set(VARIABLE.findall(module.read_text(encoding="utf-8")))
    settings = ROOT / "instrumentation" / "tailspan_vllm" / "settings.py"
    read = set(VARIABLE.findall(settings.read_text(encoding="utf-8")))
    read |= {name for name in in_code if not name.startswith("OTEL")}
    assert read - INTERNAL - explained == set()


def test_the_shapes_of_a_server_have_the_named_tests() -> None:
    """Each named file of `tests/real` exists, and starts a server with the row's flags."""
    page = (ROOT / "docs" / "watch-your-servers.md").read_text(encoding="utf-8")
    table = page.partition("## Shapes of a vLLM server")[2].partition("### ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for shape, _, named in rows:
        files = re.findall(r"test_\w+\.py", named)
        assert files or named.strip().startswith("none"), shape
        source = "".join((ROOT / "tests" / "real" / name).read_text("utf-8") for name in files)
        # A row may name several forms of one flag; one of them is tested.
        flags = re.findall(r"`(--[\w-]+|VLLM_\w+)", shape)
        assert not (files and flags) or any(flag in source for flag in flags), shape
