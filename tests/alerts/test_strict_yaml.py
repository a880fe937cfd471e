import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.errors import DocumentError
from alerts.strict_yaml import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Fields,
    MappingReader,
    Node,
    YamlScalar,
    read_documents,
)

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)


def only(text: str) -> Node:
    (document,) = read_documents(text, "f.yaml")
    return document


def test_a_value_keeps_its_text_and_its_line() -> None:
    """A target is parsed from the text, not from a float."""
    document = only("a: 1\nb:\n  c: 0.9990\n")
    assert isinstance(document, Fields)
    inner = document.fields["b"]
    assert isinstance(inner, Fields)
    assert inner.fields["c"] == YamlScalar(3, "0.9990", True)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (LAUGHS, "anchors and aliases"),
        ("a: *missing", "not YAML|anchors"),
        ("a: !!python/object/apply:os.system [id]", "tags"),
        ("a: 1\nb: 2\na: 3", "given twice, first on line 1"),
        ("[" * 100_000, "nested more than"),
        ("- " * 5_000 + "x", "nested more than"),
        ("{? [a, b] : c}", "a key must be text"),
        ("a: [", "not YAML"),
        ("a: \x07", "a character that YAML does not allow"),
        ("a: \ud800", "a character that YAML does not allow"),
        ("x" * (MAX_CHARACTERS + 1), "at most 262,144"),
        ("- x\n" * 20_001, "more than 20,000 values"),
        ("a: 'x\n---\n", "not YAML"),
    ],
)
def test_hostile_text_is_refused(text: str, wanted: str) -> None:
    with pytest.raises(DocumentError, match=wanted) as caught:
        read_documents(text, "f.yaml")
    assert (caught.value.line or 0) >= 1


def test_a_line_is_named_where_the_error_is() -> None:
    with pytest.raises(DocumentError) as caught:
        read_documents("a: 1\nb: 2\nc: 3\nb: 4\n", "f.yaml")
    assert str(caught.value) == "f.yaml:4: b: given twice, first on line 2"


def test_several_documents_are_read_and_empty_ones_omitted() -> None:
    assert len(read_documents("---\n---\na: 1\n---\nb: 2\n---\n", "f.yaml")) == 2


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(DocumentError, match=r"f.yaml:2: spec.tarqet: no such key; allowed: target"):
        MappingReader(only("x: 1\ntarqet: 0.9\n"), "f.yaml", "spec", ("target", "x"))


@pytest.mark.parametrize("text", ["a:", "a: ''", "a: null", "a: ~"])
def test_a_null_is_not_a_text(text: str) -> None:
    with pytest.raises(DocumentError, match="a: is empty"):
        MappingReader(only(text), "f.yaml", "", ("a",)).text("a")


def test_a_quoted_null_is_a_text() -> None:
    assert MappingReader(only("a: 'null'"), "f.yaml", "", ("a",)).text("a") == "null"


@given(st.text(max_size=200) | st.text("{}[]:,-&*!|>'\"%@ \n\tab01", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        documents = read_documents(text, "f.yaml")
    except DocumentError:
        return
    assert all(node.line <= text.count("\n") + 2 for node in documents)


def test_depth_is_counted_as_written() -> None:
    read_documents("[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1), "f.yaml")
    with pytest.raises(DocumentError):
        read_documents("[" * MAX_DEPTH + "x" + "]" * MAX_DEPTH, "f.yaml")
