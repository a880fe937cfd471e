import pytest

from collector.gpus.cuda_visible_devices import visible
from tests.collector.gpus.making import reading

GPUS = [
    reading("GPU-aa1", index=0),
    reading("GPU-aa2", index=1),
    reading("GPU-b", index=2),
    reading("MIG-c"),
]


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        ("0", ["GPU-aa1"]),
        (" 2 , 1", ["GPU-b", "GPU-aa2"]),
        ("GPU-b", ["GPU-b"]),
        ("GPU-aa2,MIG-c", ["GPU-aa2", "MIG-c"]),
        ("GPU-aa", []),
        ("1,9,0", ["GPU-aa2"]),
        ("-1", []),
        ("", []),
        ("all", []),
        ("NoDevFiles", []),
    ],
)
def test_the_variable_is_read_up_to_the_first_invalid_entry(variable: str, seen: list[str]) -> None:
    """An entry may be a UUID's first characters, if only one GPU has them."""
    assert visible(variable, GPUS) == seen


def test_gpu_numbers_are_ignored_if_the_models_differ() -> None:
    """CUDA numbers GPUs by speed, and the driver numbers them by slot."""
    mixed = [*GPUS, reading("GPU-d", index=3, model_name="NVIDIA L4")]
    assert visible("0,1", mixed) == []
    assert visible("GPU-d", mixed) == ["GPU-d"]
