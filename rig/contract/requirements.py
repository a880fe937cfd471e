"""Requirements on vLLM's source code, and the code that checks them."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rig.contract.reader import (
    Class,
    Function,
    Module,
    SourceTree,
    calls_of,
    leading_parameters,
    normalised_text,
    process_names,
)

Status = Literal["ok", "missing", "different"]


@dataclass(frozen=True, slots=True)
class RequirementFinding:
    """The result of checking one requirement in one version."""

    status: Status
    detail: str = ""


OK = RequirementFinding("ok")


class Requirement(Protocol):
    """A requirement on vLLM's source code."""

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """Check the requirement in the modules that `where` names."""


@dataclass(frozen=True, slots=True)
class RequiredMethod:
    """A method that the plugin wraps or implements.

    Attributes:
        takes: the names of the leading parameters. If the plugin wraps the method, `guard.argument`
            finds each parameter by its name or its position. If the plugin implements the method,
            vLLM's calls with keyword arguments must use these names.
        called_on: the last parts of the names of the objects on which vLLM calls the method.
        called_in: the folders or modules in which vLLM calls the method.
        returns: a text that the return annotation must contain.
        overridden_in: a folder with subclasses. A subclass that overrides the method must call
            super().
    """

    owner: str
    name: str
    takes: tuple[str, ...] = ()
    called_on: tuple[str, ...] = ()
    called_in: tuple[str, ...] = ()
    returns: str = ""
    overridden_in: str = ""

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        owner = tree.class_in(where, self.owner)
        if owner is None:
            return _no_class(self.owner, where)
        method = owner.method(self.name)
        if method is None:
            return RequirementFinding("missing", f"no {self.owner}.{self.name}")
        found = next(self._differences(tree, owner, method), None)
        return RequirementFinding("different", found) if found else OK

    def _differences(self, tree: SourceTree, owner: Class, method: Function) -> Iterator[str]:
        parameters = leading_parameters(method)
        if len(parameters) < len(self.takes) and method.args.vararg is None:
            yield f"{self.owner}.{self.name} takes ({', '.join(parameters)})"
        annotation = ast.unparse(method.returns) if method.returns else ""
        if self.returns not in annotation:
            yield f"{self.owner}.{self.name} returns {annotation or 'an unannotated value'}"
        for module in _modules(tree, self.called_in):
            for call in calls_of(module, self.name, self.called_on):
                if not self._suits(call):
                    yield f"called as {ast.unparse(call)} in {module.path}"
        if self.overridden_in:
            for module in tree.under(self.overridden_in):
                yield from self._loose_overrides(tree, module, owner)

    def _suits(self, call: ast.Call) -> bool:
        """Whether the plugin's method accepts this call. Its leading parameters are `takes`."""
        keywords = {keyword.arg for keyword in call.keywords}
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        if starred or None in keywords:
            return True  # arguments with * or ** cannot be checked here
        return all(
            index < len(call.args) or name in keywords for index, name in enumerate(self.takes)
        )

    def _loose_overrides(self, tree: SourceTree, module: Module, owner: Class) -> Iterator[str]:
        for name, node in module.classes.items():
            derived = Class(tree, module, node)
            if node is owner.node or all(base.node is not owner.node for base in derived.lineage):
                continue
            override = module.function(f"{name}.{self.name}")
            if override and f"super().{self.name}(" not in normalised_text(override):
                yield f"{name}.{self.name} replaces {self.owner}'s in {module.path}"


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes that a class must have.

    Attributes:
        settable: whether instances must accept an additional attribute, which the plugin sets.
    """

    owner: str
    names: tuple[str, ...]
    settable: bool = False

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        owner = tree.class_in(where, self.owner)
        if owner is None:
            return _no_class(self.owner, where)
        lacking = [name for name in self.names if name not in owner.attributes]
        if lacking:
            return RequirementFinding("missing", f"{self.owner} has no {', '.join(lacking)}")
        if self.settable and not owner.takes_new_attributes:
            return RequirementFinding(
                "different", f"{self.owner} does not allow additional attributes"
            )
        return OK


@dataclass(frozen=True, slots=True)
class RequiredConstant:
    """A constant of a module. Its text, or its tuple of texts, must be in `known`."""

    name: str
    known: tuple[str, ...]

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        for module in _modules(tree, where):
            value = module.constant(self.name)
            if value is None:
                continue
            values = value if isinstance(value, tuple | list) else (value,)
            unknown = [repr(each) for each in values if each not in self.known]
            return (
                RequirementFinding("different", f"{self.name}: {', '.join(unknown)}")
                if unknown
                else OK
            )
        return RequirementFinding("missing", f"no {self.name} in {_places(where)}")


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A requirement that the module starts a child process whose name begins with this text."""

    begins: str

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        found = [name for module in _modules(tree, where) for name in process_names(module)]
        if any(name.startswith(self.begins) for name in found):
            return OK
        found_names = ", ".join(sorted({repr(name) for name in found})) or "none"
        return RequirementFinding(
            "missing", f"no name= that begins {self.begins!r} in {_places(where)}: {found_names}"
        )


@dataclass(frozen=True, slots=True)
class Contains:
    """A function whose source must contain one of these texts, in the form that `ast.unparse`
    writes.

    If `never` is set, the source must contain none of these texts.
    """

    function: str
    texts: tuple[str, ...]
    never: bool = False

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        functions = (module.function(self.function) for module in _modules(tree, where))
        function = next((found for found in functions if found), None)
        if function is None:
            if self.never:
                return OK
            return RequirementFinding("missing", f"no {self.function} in {_places(where)}")
        text = normalised_text(function)
        found = next((each for each in self.texts if each in text), None)
        if self.never:
            return (
                RequirementFinding("different", f"{self.function} contains {found}")
                if found
                else OK
            )
        return (
            OK
            if found
            else RequirementFinding("different", f"{self.function} lacks {self.texts[0]}")
        )


@dataclass(frozen=True, slots=True)
class Attribute:
    """A class with an attribute that has this text as its value."""

    owner: str
    text: str

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        owner = tree.class_in(where, self.owner)
        if owner is None:
            return _no_class(self.owner, where)
        if self.text in _texts(owner.node):
            return OK
        return RequirementFinding("missing", f"{self.owner} has no {self.text}")


@dataclass(frozen=True, slots=True)
class Named:
    """A module that contains this text as a literal."""

    text: str

    def check(self, tree: SourceTree, where: Sequence[str]) -> RequirementFinding:
        """See `Requirement`."""
        if any(self.text in _texts(module.node) for module in _modules(tree, where)):
            return OK
        return RequirementFinding("missing", f"no {self.text} in {_places(where)}")


def _texts(node: ast.AST) -> set[str]:
    return {
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def _modules(tree: SourceTree, paths: Sequence[str]) -> Iterator[Module]:
    """The modules at these paths. The path of a folder selects all modules inside it."""
    for path in paths:
        if path.endswith(".py"):
            if module := tree.module(path):
                yield module
        else:
            yield from tree.under(path)


def _no_class(name: str, where: Sequence[str]) -> RequirementFinding:
    return RequirementFinding("missing", f"no class {name} in {_places(where)}")


def _places(where: Sequence[str]) -> str:
    return " or ".join(where)
