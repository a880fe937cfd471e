from hypothesis import given
from hypothesis import strategies as st

from telemetry.starts import Difference, differences, read, written

SCALARS = st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
ARGUMENTS = st.dictionaries(st.text(), SCALARS | st.booleans())


def test_differences_have_both_values() -> None:
    before = written({"scheduler.max_num_seqs": 16, "scheduler.policy": "fcfs"})
    after = written({"scheduler.max_num_seqs": 4, "scheduler.policy": "fcfs", "lora.max_loras": 2})
    assert differences(before, after) == [
        Difference("lora.max_loras", None, 2),
        Difference("scheduler.max_num_seqs", 16, 4),
    ]


@given(ARGUMENTS)
def test_arguments_are_read_as_they_were_written(
    arguments: dict[str, str | int | float | bool],
) -> None:
    assert read(written(arguments)) == arguments
    assert differences(written(arguments), written(arguments)) == []
