import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

Found = dict[str, list[str]]
Ask = Callable[[str, Mapping[str, str], Found], None]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that checks at which minutes a query on these series has a value."""

    def run(expr: str, series: Mapping[str, str], expected: Found) -> None:
        if shutil.which("promtool") is None:
            pytest.skip("there is no promtool: apt-get install prometheus")
        test = {
            "interval": "1m",
            "input_series": [{"series": name, "values": each} for name, each in series.items()],
            "promql_expr_test": [
                {
                    "expr": re.sub(r"\$\w+", ".*", expr),
                    "eval_time": at,
                    "exp_samples": [{"labels": each, "value": 1} for each in found],
                }
                for at, found in expected.items()
            ],
        }
        (tmp_path / "test.yaml").write_text(yaml.safe_dump({"tests": [test]}))
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yaml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run
