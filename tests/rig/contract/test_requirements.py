from collections.abc import Callable

import pytest

from rig.contract.reader import SourceTree
from rig.contract.requirements import (
    Attribute,
    Attributes,
    Contains,
    Named,
    ProcessName,
    RequiredConstant,
    RequiredMethod,
    Requirement,
)

MakeTree = Callable[[dict[str, str]], SourceTree]
FINISHED = RequiredMethod(
    "Outputs", "_finished", takes=("state", "reason"), called_on=("self",), called_in=("a.py",)
)


def _outputs(call: str, parameters: str = "self, req_state, why, stats") -> dict[str, str]:
    return {
        "a.py": f"""
        class Outputs:
            def _finished({parameters}): ...
            def process(self):
                {call}
        """
    }


@pytest.mark.parametrize(
    "call",
    ["self._finished(s, r, i)", "self._finished(s, reason=r)", "self._finished(*every)", "pass"],
)
def test_a_call_that_the_wrapper_accepts_is_fine(make_tree: MakeTree, call: str) -> None:
    assert FINISHED.check(make_tree(_outputs(call)), ("a.py",)).status == "ok"


def test_a_call_by_a_keyword_that_our_wrapper_lacks_is_found(make_tree: MakeTree) -> None:
    """A call with an unknown keyword would raise an exception in vLLM's process."""
    tree = make_tree(_outputs("self._finished(req_state=s, why=r)"))
    finding = FINISHED.check(tree, ("a.py",))
    assert finding.status == "different"
    assert "self._finished(req_state=s, why=r)" in finding.detail


def test_the_calls_of_another_class_do_not_count(make_tree: MakeTree) -> None:
    tree = make_tree(_outputs("self.other._finished(req_state=s)"))
    assert FINISHED.check(tree, ("a.py",)).status == "ok"


def test_a_method_with_too_few_parameters_is_found(make_tree: MakeTree) -> None:
    finding = FINISHED.check(make_tree(_outputs("pass", "self, state")), ("a.py",))
    assert finding.status == "different"
    assert "(state)" in finding.detail


@pytest.mark.parametrize(
    "text", ["", "class Outputs: ...", "class Other:\n    def _finished(self): ..."]
)
def test_a_missing_method_or_class_is_missing(make_tree: MakeTree, text: str) -> None:
    assert FINISHED.check(make_tree({"a.py": text}), ("a.py", "b.py")).status == "missing"


def test_a_return_annotation_is_compared(make_tree: MakeTree) -> None:
    """The plugin reads the list that `abort` returns, so `None` is reported as different."""
    requirement = RequiredMethod("A", "abort", returns="list[str]")
    tree = make_tree({"a.py": "class A:\n    def abort(self) -> None: ..."})
    assert requirement.check(tree, ("a.py",)).status == "different"


@pytest.mark.parametrize(
    ("body", "status"), [("return 1", "different"), ("return super().schedule()", "ok")]
)
def test_an_override_must_call_what_we_wrap(make_tree: MakeTree, body: str, status: str) -> None:
    """A vLLM subclass that replaces the method would bypass the plugin's wrapper."""
    tree = make_tree(
        {
            "s/base.py": "class Scheduler:\n    def schedule(self): ...",
            "s/derived.py": f"""
            from s.base import Scheduler
            class Other(Scheduler):
                def schedule(self):
                    {body}
            """,
        }
    )
    requirement = RequiredMethod("Scheduler", "schedule", overridden_in="s")
    assert requirement.check(tree, ("s/base.py",)).status == status


def test_a_class_is_found_at_its_earlier_path(make_tree: MakeTree) -> None:
    tree = make_tree({"old.py": "class A:\n    x: int", "new.py": ""})
    assert Attributes("A", ("x",)).check(tree, ("new.py", "old.py")).status == "ok"


def test_missing_attributes_are_named(make_tree: MakeTree) -> None:
    finding = Attributes("A", ("x", "y", "z")).check(
        make_tree({"a.py": "class A:\n    y: int"}), ("a.py",)
    )
    assert finding.status == "missing"
    assert finding.detail == "A has no x, z"


def test_a_class_with_slots_differs(make_tree: MakeTree) -> None:
    requirement = Attributes("A", ("x",), settable=True)
    tree = make_tree({"a.py": "@dataclass(slots=True)\nclass A:\n    x: int"})
    assert requirement.check(tree, ("a.py",)).status == "different"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("REASONS = ('stop',)", "ok"),
        ("REASONS: tuple = ('stop', 'length')", "ok"),
        ("REASONS = ('stop', 'boredom')", "different"),
        ("REASONS = compute()", "missing"),
        ("OTHER = 1", "missing"),
    ],
)
def test_a_constant_holds_only_expected_values(make_tree: MakeTree, text: str, status: str) -> None:
    """A missing value is accepted. A new value must be reviewed."""
    requirement = RequiredConstant("REASONS", ("stop", "length"))
    assert requirement.check(make_tree({"a.py": text}), ("a.py",)).status == status


def test_a_renamed_process_is_reported(make_tree: MakeTree) -> None:
    tree = make_tree({"a.py": 'Process(name=f"Core{i}")'})
    assert ProcessName("Core").check(tree, ("a.py",)).status == "ok"
    finding = ProcessName("EngineCore").check(tree, ("a.py",))
    assert finding.status == "missing"
    assert "'Core{}'" in finding.detail


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        (Contains("A.f", ("load()",)), "ok"),
        (Contains("A.f", ("save()", "load()")), "ok"),
        (Contains("A.f", ("save()",)), "different"),
        (Contains("A.g", ("load()",)), "missing"),
        (Contains("A.f", ("load()",), never=True), "different"),
        (Contains("A.f", ("save()",), never=True), "ok"),
        (Contains("A.g", ("load()",), never=True), "ok"),
    ],
)
def test_a_functions_source_is_checked_for_texts(
    make_tree: MakeTree, requirement: Requirement, status: str
) -> None:
    tree = make_tree({"a.py": "class A:\n    def f(self):\n        load()"})
    assert requirement.check(tree, ("a.py",)).status == status


def test_a_text_is_searched_in_a_class_or_a_module(make_tree: MakeTree) -> None:
    tree = make_tree({"vllm/a.py": "class Names:\n    X = 'gen_ai.x'\nY = 'vllm:y_total'\n"})
    where = ("vllm/a.py",)
    assert Attribute("Names", "gen_ai.x").check(tree, where).status == "ok"
    assert Attribute("Names", "gen_ai").check(tree, where).status == "missing"
    assert Attribute("Other", "gen_ai.x").check(tree, where).status == "missing"
    assert Named("vllm:y_total").check(tree, where).status == "ok"
    assert Named("vllm:y").check(tree, where).status == "missing"
