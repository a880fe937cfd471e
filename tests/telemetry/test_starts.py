"""Two configurations held against each other."""

from hypothesis import given
from hypothesis import strategies as st

from telemetry.starts import Difference, differences, read, written

SCALARS = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ARGUMENTS = st.dictionaries(st.text(), SCALARS | st.booleans())


def test_what_differs_is_told_with_both_values() -> None:
    """And what one side lacks with None; what is equal is left out."""
    before = written({"scheduler.max_num_seqs": 16, "scheduler.policy": "fcfs"})
    after = written({"scheduler.max_num_seqs": 4, "scheduler.policy": "fcfs", "lora.max_loras": 2})
    assert differences(before, after) == [
        Difference("lora.max_loras", None, 2),
        Difference("scheduler.max_num_seqs", 16, 4),
    ]


@given(ARGUMENTS)
def test_what_is_written_is_read_back(arguments: dict[str, str | int | float | bool]) -> None:
    """With its types; and it differs from itself in nothing."""
    assert read(written(arguments)) == arguments
    assert differences(written(arguments), written(arguments)) == []
