from collections.abc import Callable

import pytest

from rig.contract.reader import (
    Class,
    SourceTree,
    leading_parameters,
    normalised_text,
    process_names,
)

MakeTree = Callable[[dict[str, str]], SourceTree]


def _class(tree: SourceTree, path: str, name: str) -> Class:
    found = tree.class_in((path,), name)
    assert found is not None
    return found


def test_attributes_come_from_fields_methods_and_self(make_tree: MakeTree) -> None:
    tree = make_tree(
        {
            "a.py": """
            class Request:
                kind: str
                limit = 3
                def __init__(self):
                    self.request_id, self.n = "x", 1
                    self.events: list = []
                    local = self.request_id
                @property
                def num_tokens(self): ...
            """
        }
    )
    wanted = {"kind", "limit", "request_id", "n", "events", "num_tokens"}
    found = _class(tree, "a.py", "Request").attributes
    assert wanted <= found
    assert "local" not in found


def test_inherited_methods_from_another_module_count(make_tree: MakeTree) -> None:
    tree = make_tree(
        {
            "v/interface/__init__.py": "class Base:\n    def has_work(self): ...",
            "v/scheduler.py": """
            from v.interface import Base as Parent
            class Scheduler(Parent): ...
            """,
        }
    )
    scheduler = _class(tree, "v/scheduler.py", "Scheduler")
    assert "has_work" in scheduler.attributes
    assert scheduler.method("has_work") is not None


def test_a_class_that_inherits_from_itself_ends(make_tree: MakeTree) -> None:
    tree = make_tree({"a.py": "class A(B): ...\nclass B(A):\n    x = 1"})
    assert "x" in _class(tree, "a.py", "A").attributes


@pytest.mark.parametrize(
    "text",
    [
        "class S:\n    __slots__ = ('a',)",
        "@dataclass(slots=True)\nclass S:\n    a: int",
        "@dataclass(frozen=True)\nclass S:\n    a: int",
        "class S(msgspec.Struct, array_like=True):\n    a: int",
    ],
)
def test_classes_without_instance_attributes_are_detected(make_tree: MakeTree, text: str) -> None:
    """The plugin sets an attribute on vLLM's objects, which these classes do not allow."""
    assert not _class(make_tree({"a.py": text}), "a.py", "S").takes_new_attributes


def test_a_plain_dataclass_takes_attributes(make_tree: MakeTree) -> None:
    tree = make_tree({"a.py": "@dataclass\nclass S:\n    a: int = 0"})
    assert _class(tree, "a.py", "S").takes_new_attributes


def test_parameters_exclude_self_and_keyword_only_ones(make_tree: MakeTree) -> None:
    tree = make_tree({"a.py": "class A:\n    def f(self, a, b=1, *, c): ..."})
    method = _class(tree, "a.py", "A").method("f")
    assert method is not None
    assert leading_parameters(method) == ["a", "b"]


def test_process_names_are_read_from_both_branches(make_tree: MakeTree) -> None:
    """A computed part of a name is written as {}."""
    module = make_tree(
        {"a.py": 'Process(target=f, name=f"Engine_DP{i}" if dp else "Engine")\nThread(name=n)'}
    ).module("a.py")
    assert module is not None
    assert list(process_names(module)) == ["Engine_DP{}", "Engine"]


def test_comments_and_spacing_are_ignored(make_tree: MakeTree) -> None:
    module = make_tree({"a.py": "def f():\n    # g()\n    a.extend(\n        b\n    )"}).module(
        "a.py"
    )
    assert module is not None
    function = module.function("f")
    assert function is not None
    assert "a.extend(b)" in normalised_text(function)
    assert "g()" not in normalised_text(function)


def test_a_missing_module_is_none(make_tree: MakeTree) -> None:
    assert make_tree({}).module("gone.py") is None


def test_a_file_that_is_not_python_is_named(make_tree: MakeTree) -> None:
    tree = make_tree({"bad.py": "class :"})
    with pytest.raises(ValueError, match=r"bad\.py: cannot be read"):
        tree.module("bad.py")
