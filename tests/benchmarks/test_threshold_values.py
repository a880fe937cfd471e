"""Run in a process of its own, because the benchmark changes how `diagnosis/` is imported."""

import json
import subprocess
import sys

PROGRAM = """
import json
import numpy as np
from benchmarks import threshold_values
from benchmarks._diagnosis_constants import NumericConstant

source = (
    "found = a > LIMIT * b, size < LEAST, sizes[LEAST - 10] >= LIMIT,"
    " np.array([1.0, 2.0, 9.0]) >= LIMIT + 1.0"
)
names = {each: NumericConstant("diagnosis.m", each, 1) for each in ("LIMIT", "LEAST")}
space = {"a": 6.0, "b": 3.0, "size": 7, "sizes": [8], "LIMIT": 1.5, "LEAST": 10, "np": np}
space["_recorded"] = threshold_values._recorded
exec(threshold_values.recording_code(source, "m", names), space)
found = [np.asarray(each).tolist() for each in space["found"]]
print(json.dumps([found, dict(threshold_values._values)]))
"""


def test_a_comparison_records_the_constant_that_would_change_its_result() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    ).stdout
    found, values = json.loads(printed)
    assert found == [True, True, True, [False, False, True]]
    assert {label: [round(each, 9) for each in seen] for label, seen in values.items()} == {
        "m.LIMIT": [2.0, 8.0, 1.0],  # 6 / 3; sizes[0]; the median of the array minus 1
        "m.LEAST": [7.0],
    }
