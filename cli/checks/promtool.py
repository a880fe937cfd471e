"""Check generated rules with promtool, if it is installed."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from alerts.errors import DocumentError
from alerts.objectives import Objective
from alerts.prometheus.generate import EXPLORER_URL, tailspan_rules

TIMEOUT_S = 60


def refused(objectives: Sequence[Objective]) -> list[DocumentError]:
    """An error for each objective whose rules promtool rejects."""
    promtool = shutil.which("promtool")
    if promtool is None or not objectives or _refusal(promtool, objectives) is None:
        return []
    found = []
    for each in objectives:
        why = _refusal(promtool, [each])
        if why is not None:
            found.append(DocumentError(each.file, each.line, "", f"promtool rejects it: {why}"))
    return found


def _refusal(promtool: str, objectives: Sequence[Objective]) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.yaml"
        file.write_text(tailspan_rules(objectives, EXPLORER_URL), encoding="utf-8")
        try:
            done = subprocess.run(
                [promtool, "check", "rules", "--lint=none", str(file)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"promtool could not be run: {error}"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith(("Checking", "FAILED")))
