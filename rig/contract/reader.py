"""Read Python source code as text: classes with their bases, attributes and calls."""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


class SourceTree:
    """The modules under a folder. The key is the path relative to the folder, such as
    `vllm/v1/request.py`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, Module | None] = {}

    def module(self, path: str) -> "Module | None":
        """The module at this path, or None if there is no file.

        Raises:
            ValueError: the file is not Python, or this Python does not support its syntax.
        """
        if path not in self._modules:
            file = self._root / path
            if not file.is_file():
                self._modules[path] = None
            else:
                try:
                    self._modules[path] = Module(path, ast.parse(file.read_bytes()))
                except (SyntaxError, ValueError) as error:
                    raise ValueError(f"{path}: cannot be read as Python: {error}") from error
        return self._modules[path]

    def class_in(self, paths: Sequence[str], name: str) -> "Class | None":
        """The class with this name. If several of these modules define it, the first module is
        used."""
        for path in paths:
            module = self.module(path)
            node = module.classes.get(name) if module else None
            if module and node:
                return Class(self, module, node)
        return None

    def under(self, folder: str) -> Iterator["Module"]:
        """Yield every module in a folder and its subfolders, in the order of the paths."""
        for file in sorted((self._root / folder).rglob("*.py")):
            if module := self.module(file.relative_to(self._root).as_posix()):
                yield module


class Module:
    """A parsed module."""

    def __init__(self, path: str, node: ast.Module) -> None:
        self.path = path
        self.node = node

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Maps a name to the top-level class with this name."""
        return {node.name: node for node in self.node.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """The imported names. For `from a.b import c as d`, it maps d to (a/b.py, c)."""
        return {
            alias.asname or alias.name: (node.module.replace(".", "/") + ".py", alias.name)
            for node in ast.walk(self.node)
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }

    def function(self, qualified: str) -> Function | None:
        """The function with this name, such as `f` or the method `Class.f`."""
        owner, _, name = qualified.rpartition(".")
        holder: ast.AST | None = self.classes.get(owner) if owner else self.node
        body = getattr(holder, "body", [])
        found = [node for node in body if isinstance(node, Function) and node.name == name]
        return found[-1] if found else None

    def constant(self, name: str) -> object:
        """The value of a module-level name, or None if it is not a literal."""
        for node in self.node.body:
            target = _bound_name(node)
            if target == name and isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                try:
                    value: object = ast.literal_eval(node.value)
                except ValueError:
                    return None
                return value
        return None


class Class:
    """A class, and its base classes in the same tree."""

    def __init__(self, tree: SourceTree, module: Module, node: ast.ClassDef) -> None:
        self._tree = tree
        self.module = module
        self.node = node

    @cached_property
    def lineage(self) -> list["Class"]:
        """The class and its base classes in this tree. The nearest class is first."""
        found: list[Class] = []
        pending = [self]
        while pending:
            current = pending.pop(0)
            if any(current.node is known.node for known in found):
                continue
            found.append(current)
            for base in current.node.bases:
                name = ast.unparse(base).partition("[")[0]
                path, original = current.module.imports.get(name, (current.module.path, name))
                package = path.removesuffix(".py") + "/__init__.py"
                if parent := self._tree.class_in((path, package), original):
                    pending.append(parent)
        return found

    def method(self, name: str) -> Function | None:
        """The method that an instance of the class uses. The instance may inherit it."""
        for owner in self.lineage:
            for node in reversed(owner.node.body):
                if isinstance(node, Function) and node.name == name:
                    return node
        return None

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of fields, class attributes and methods, and of attributes that methods set."""
        found: set[str] = set()
        for owner in self.lineage:
            for node in owner.node.body:
                if isinstance(node, Function):
                    found.add(node.name)
                    found.update(_set_on_self(node))
                elif name := _bound_name(node):
                    found.add(name)
        return frozenset(found)

    @property
    def takes_new_attributes(self) -> bool:
        """Whether an instance has a `__dict__`."""
        for owner in self.lineage:
            if any(_bound_name(node) == "__slots__" for node in owner.node.body):
                return False
            decorators = " ".join(map(ast.unparse, owner.node.decorator_list))
            if "slots=True" in decorators or "frozen=True" in decorators:
                return False
            if any(ast.unparse(base).endswith("Struct") for base in owner.node.bases):
                return False
        return True


def leading_parameters(function: Function) -> list[str]:
    """The names of the parameters that callers may pass by position. `self` is omitted."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def calls_of(module: Module, name: str, receivers: Sequence[str]) -> Iterator[ast.Call]:
    """Yield the calls `….receiver.name(…)` in a module."""
    for node in ast.walk(module.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = ast.unparse(node.func.value).rpartition(".")[2]
            if node.func.attr == name and receiver in receivers:
                yield node


def process_names(module: Module) -> Iterator[str]:
    """The values of all `name=` arguments in a module. `{}` replaces each computed part."""
    for node in ast.walk(module.node):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "name":
                    yield from _texts(keyword.value)


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)


def _bound_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _set_on_self(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


@lru_cache(maxsize=256)
def normalised_text(function: Function) -> str:
    """The text of a function, without comments and with uniform spacing."""
    return ast.unparse(function)
