import subprocess
import sys

CODE = """
import sys
from telemetry import pandas_import
pandas_import.prevent()
import pyarrow as pa
assert pa.array([1]).to_pylist() == [1]
print("pandas" in sys.modules)
"""


def test_pyarrow_needs_no_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
