"""YAML is read as plain data, with its lines, or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.errors import DocumentError
from alerts.strict_yaml import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Fields,
    Node,
    Reader,
    Text,
    read_documents,
)

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)


def only(text: str) -> Node:
    """The one document."""
    (document,) = read_documents(text, "f.yaml")
    return document


def test_a_value_keeps_its_text_and_its_line() -> None:
    """A target is read from what was written, not from a float made of it."""
    document = only("a: 1\nb:\n  c: 0.9990\n")
    assert isinstance(document, Fields)
    inner = document.fields["b"]
    assert isinstance(inner, Fields)
    assert inner.fields["c"] == Text(3, "0.9990", True)


@pytest.mark.parametrize(
    ("text", "says"),
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
        ("- x\n" * 30_000, "more than 20,000 values"),
        ("a: 'x\n---\n", "not YAML"),
    ],
)
def test_hostile_text_is_refused_with_a_sentence(text: str, says: str) -> None:
    """And quickly: nothing is built before it is checked."""
    with pytest.raises(DocumentError, match=says) as caught:
        read_documents(text, "f.yaml")
    assert caught.value.line >= 1


def test_a_line_is_named_where_the_error_is() -> None:
    """The user's editor can jump there."""
    with pytest.raises(DocumentError) as caught:
        read_documents("a: 1\nb: 2\nc: 3\nb: 4\n", "f.yaml")
    assert str(caught.value) == "f.yaml:4: b: given twice, first on line 2"


def test_several_documents_are_read_and_empty_ones_left_out() -> None:
    """As kubectl's users write them."""
    assert len(read_documents("---\n---\na: 1\n---\nb: 2\n---\n", "f.yaml")) == 2


def test_a_key_that_nobody_asked_for_is_an_error() -> None:
    """A misspelt key is not an absent one."""
    with pytest.raises(DocumentError, match=r"f.yaml:2: spec.tarqet: no such key; allowed: target"):
        Reader(only("x: 1\ntarqet: 0.9\n"), "f.yaml", "spec", ("target", "x"))


@pytest.mark.parametrize("text", ["a:", "a: ''", "a: null", "a: ~"])
def test_nothing_is_not_a_text(text: str) -> None:
    """An empty value is said to be empty."""
    with pytest.raises(DocumentError, match="a: is empty"):
        Reader(only(text), "f.yaml", "", ("a",)).text("a")


def test_a_quoted_null_is_a_text() -> None:
    """Quotes say that it is meant."""
    assert Reader(only("a: 'null'"), "f.yaml", "", ("a",)).text("a") == "null"


@given(st.text(max_size=200) | st.text("{}[]:,-&*!|>'\"%@ \n\tab01", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else ever comes out."""
    try:
        documents = read_documents(text, "f.yaml")
    except DocumentError:
        return
    assert all(node.line <= text.count("\n") + 2 for node in documents)


def test_depth_is_counted_as_written() -> None:
    """Thirty-two deep is allowed, and no more."""
    read_documents("[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1), "f.yaml")
    with pytest.raises(DocumentError):
        read_documents("[" * MAX_DEPTH + "x" + "]" * MAX_DEPTH, "f.yaml")
