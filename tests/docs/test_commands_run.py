"""The documentation's commands that only read are run on a simulated fleet with an incident."""

import shlex
import shutil
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from cli.main import tailspan
from tests.docs.test_site import ROOT, commands
from tests.docs.test_snippets import snippet
from tests.served_api import store_fleet

NOT_RUN: Final = {
    "up": "runs until Ctrl-C",
    "collect": "runs until Ctrl-C",
    "ui": "runs until Ctrl-C",
    "mcp": "runs until Ctrl-C",
    "gpus --endpoint": "runs until Ctrl-C",
    "simulate": "sends to a collector",
    "probe": "sends requests to endpoints",
    "doctor": "checks the ports of this machine",
    "dashboards push": "needs a Grafana",
    "slo notify": "sends messages",
    "config 049c": "needs two configurations",
    "what-if": "replays for minutes; test_api_pages.py runs a short one",
    "advise": "replays for minutes",
}
"""Why a command of the documentation is not run here, by how it begins. tests/cli/ runs each."""

NAMES: Final = {"blue-0": "sim-0", "green-0": "sim-1", "tenant-1": "acme"}
"""Names in the documentation, and in the simulated fleet."""


def _for_the_fleet(line: str, end_s: int) -> list[str]:
    """Return the words of a command, with names and times of the fleet, and without a replay."""
    words = shlex.split(line.partition(" > ")[0])
    if "--before" in words:
        words[words.index("--before") + 1] = f"{end_s - 1_100}/{end_s - 700}"
        words[words.index("--after") + 1] = f"{end_s - 290}/{end_s}"
    elif "--last" in words:  # on a slow machine, the last minutes have no data any more
        begins = words.index("--last")
        words[begins : begins + 2] = ["--from", str(end_s - 900), "--to", str(end_s)]
    for name, here in NAMES.items():
        words = [word.replace(name, here) for word in words]
    return [*words, "--fast"] if words[0] in ("explain", "compare") else words


@pytest.mark.timeout(300)
def test_the_commands_that_read_answer(
    tmp_path: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status is 0, or 1 for a finding. One test, so that one fleet is simulated."""
    url = f"sqlite:///{tmp_path}/tailspan.db"
    end_s = store_fleet(url, run_folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILSPAN_DATABASE_URL", url)
    (tmp_path / "budget.yaml").write_text(snippet("docs/budget.md", "yaml"))
    shutil.copytree(ROOT / "alerts" / "objectives", tmp_path / "objectives")
    lines = sorted({line.partition("#")[0].strip() for _, line in commands()})
    runnable = [line for line in lines if not line.startswith(tuple(NOT_RUN))]
    assert len(runnable) > 20
    failed = {}
    for line in runnable:
        result = CliRunner().invoke(tailspan, _for_the_fleet(line, end_s))
        if result.exit_code not in (0, 1) or not isinstance(result.exception, SystemExit | None):
            failed[line] = (result.exit_code, result.output, result.exception)
    assert not failed
    assert all(any(line.startswith(begins) for line in lines) for begins in NOT_RUN)
