import pytest
import yaml

from telemetry.bounded_yaml import MAX_EXPANDED_CHARACTERS, load_yaml


def levels(number: int, last: str) -> str:
    """A document in which each level repeats the level before it ten times."""
    lines = ["a0: &a0 {k0: [v, v]}"]
    for level in range(1, number):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} {{<<: [{inner}]}}")
    return "\n".join([*lines, last.format(f"*a{number - 1}")])


def test_aliases_repeat_a_value() -> None:
    assert load_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == {
        "a": {"x": 1},
        "b": {"x": 1},
        "c": {"x": 1, "y": 2},
    }
    assert load_yaml("") is None
    assert load_yaml(levels(3, "last: {}"))["last"] == {"k0": ["v", "v"]}


@pytest.mark.parametrize(
    "text",
    [
        levels(9, "last: {}"),
        levels(9, "last: {}").replace("<<", "k1"),
        "[&a " + "x" * (MAX_EXPANDED_CHARACTERS // 2) + ", *a, *a]",
        "&a [*a]",
        "[" * 100_000,
    ],
    ids=["merged", "nested", "long text", "itself", "deep"],
)
def test_a_document_that_expands_too_far_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"more than 4,194,304 characters|nested too deeply"):
        load_yaml(text)
