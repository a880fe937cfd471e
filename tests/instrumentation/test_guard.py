import ast
from pathlib import Path
from typing import Any

import pytest
from tailspan_vllm import guard
from tailspan_vllm.guard import Hooks, argument

OURS = Path(guard.__file__).parent

WRAPPER = """
seen = enter(args, kwargs)
result = original(*args, **kwargs)
leave(seen, result, args, kwargs)
return result
"""
FIRST_STEP = """
enter(args, kwargs)
return original(*args, **kwargs)
"""
LAST_STEP = """
result = original(*args, **kwargs)
leave(None, result, args, kwargs)
return result
"""
CHANGING = """
result = original(*args, **kwargs)
other = changed(None, result, args, kwargs)
return result if other is _FAILED else other
"""
NOTING = """
try:
    return original(*args, **kwargs)
except BaseException as error:
    seen(None, error, args, kwargs)
    raise
"""


EDGE = """
capture = self.capture
exchange = _begin(capture, scope)
if exchange is None or capture is None:
    await self.app(scope, receive, _noting_ready(send, scope, capture))
    return
token = current.set(exchange)
try:
    await self.app(scope, _watched_receive(receive, exchange), _timed_send(send, exchange))
finally:
    _end(capture, exchange, token)
"""
RECEIVE = """
message = await receive()
_note_disconnect(message, exchange, receive)
return message
"""


def functions(module: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse((OURS / module).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def test_a_wrapper_contains_only_the_original_call_and_guarded_steps() -> None:
    """Any statement besides these could raise an exception in vLLM."""
    bodies = [
        "\n".join(map(ast.unparse, node.body))
        for node in functions("guard.py")
        if node.name == "wrapper"
    ]
    allowed = (WRAPPER, FIRST_STEP, LAST_STEP, CHANGING, NOTING)
    assert sorted(bodies) == sorted(body.strip() for body in allowed)
    guards = [node for node in functions("guard.py") if node.name == "guarded"]
    assert len(guards) == 2
    for guarded in guards:
        _nonlocal, look, attempt, *rest = guarded.body
        assert isinstance(look, ast.If)
        assert isinstance(attempt, ast.Try)
        assert [ast.unparse(each.type or look) for each in attempt.handlers] == ["Exception"]
        unguarded = [node for each in (look, *rest) for node in ast.walk(each)]
        assert not any(isinstance(node, ast.Call) for node in unguarded)


@pytest.mark.parametrize(
    "module", ["front_end/request_hooks.py", "engine_core/scheduler_hooks.py", "plugin.py"]
)
def test_every_replaced_method_is_a_wrapper_of_the_guard(module: str) -> None:
    tree = ast.parse((OURS / module).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in ("original", "functools.wraps", "wraps"), module
    for function in functions(module):
        parameters = [each.arg for each in function.args.args]
        if "original" not in parameters:
            continue
        *before, last = function.body
        assert isinstance(last, ast.Return), function.name
        made = ast.unparse(last.value or last)
        watching = "watched = self._hooks.wrap_errors(original, "
        if any(ast.unparse(each).startswith(watching) for each in before):
            made = made.replace("wrap(watched", "wrap(original")
        assert made.startswith(("hooks.wrap(original", "self._hooks.wrap(original")), made
    assigned = [
        ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("FastAPI.")
    ]
    assert all(value.startswith("guard.Hooks(") and ".wrap_result(" in value for value in assigned)
    assert bool(assigned) == (module == "plugin.py")


def test_the_http_layer_contains_only_the_application_and_guarded_steps() -> None:
    inside = {node.name: node for node in functions("http.py")}
    for name, body in (("__call__", EDGE), ("watched", RECEIVE)):
        lines = [each for each in inside[name].body if not is_docstring(each)]
        assert "\n".join(map(ast.unparse, lines)) == body.strip()
    for name in ("_end", "_give_up", "note", "_note_disconnect"):
        assert [ast.unparse(each)[:23] for each in inside[name].decorator_list] == [
            "guard.catch_exceptions("
        ]
    for name in ("_begin", "_enabled_capture"):
        (attempt,) = (each for each in inside[name].body if not is_docstring(each))
        assert isinstance(attempt, ast.Try)
    attempt, *_, last = (each for each in inside["_noting_ready"].body if not is_docstring(each))
    assert isinstance(attempt, ast.Try)
    assert ast.unparse(last) == "return noting"
    assert [ast.unparse(each) for each in inside["noting"].body] == [
        "note(message)",
        "return send(message)",
    ]
    _, look, last = inside["timed"].body
    assert ast.unparse(last) == "return send(message)"
    assert isinstance(look, ast.Try)


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_each_method_that_vllm_calls_on_its_own_is_guarded() -> None:
    tree = ast.parse((OURS / "statlogger.py").read_text())
    (logger,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    methods = [node for node in logger.body if isinstance(node, ast.FunctionDef)]
    (install,) = (node for node in functions("plugin.py") if node.name == "install")
    for method in (*methods, install):
        decorators = [ast.unparse(each) for each in method.decorator_list]
        steps = [each for each in method.body if not is_docstring(each)]
        # The method `record` runs at every step, so the guard is inside the method and not around
        # it.
        attempt = steps[0] if len(steps) == 1 else None
        inside = isinstance(attempt, ast.Try)
        if isinstance(attempt, ast.Try):
            (handler,) = attempt.handlers
            assert ast.unparse(handler).split("\n")[0] == "except Exception:"
            assert ast.unparse(handler.body[0]).startswith("guard.note_failure(")
        assert (
            not steps
            or inside
            or any(each.startswith("guard.catch_exceptions(") for each in decorators)
        ), method.name


def test_the_original_is_called_once_with_exactly_what_was_given() -> None:
    seen: list[Any] = []

    def original(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return seen

    steps: list[dict[str, Any]] = [
        {"before": lambda *_: 7, "after": lambda *_: None},
        {"before": lambda *_: 7},
        {"after": lambda *_: None},
    ]
    for each in steps:
        seen.clear()
        wrapped = Hooks("test").wrap(original, "h", **each)
        first, second = object(), object()
        assert wrapped(first, key=second) is seen
        (((given,), named),) = seen
        assert given is first
        assert named["key"] is second


@pytest.mark.parametrize("where", ["before", "after", "change"])
def test_failing_hooks_are_switched_off(where: str, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[str] = []

    def failing(*_: Any) -> None:
        ran.append("failing")
        raise ZeroDivisionError

    hook = f"test.{where}"
    hooks = Hooks("test", switched_off=lambda: ran.append("off"))
    if where == "change":
        fails = hooks.wrap_result(lambda: 3, hook, failing)
    else:
        fails = hooks.wrap(lambda: 3, hook, **{where: failing})
    works = hooks.wrap(lambda: 4, "works", before=lambda *_: ran.append("working"))
    caplog.set_level("WARNING", "vllm.tailspan")
    for _ in range(guard.LIMIT - 1):
        assert (fails(), works()) == (3, 4)  # each hook has its own count
    assert [hooks.off] == [False]
    for _ in range(200):
        assert (fails(), works()) == (3, 4)
    assert [hooks.off] == [True]
    assert ran.count("failing") == guard.failures[hook] == guard.LIMIT
    assert ran.count("working") == guard.LIMIT - 1
    assert ran.count("off") == 1
    assert len(caplog.records) == 2


def test_occasional_failures_disable_no_hook() -> None:
    calls = 0

    def odd(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % guard.LIMIT:
            raise ZeroDivisionError

    hooks = Hooks("test")
    wrapped = hooks.wrap(lambda: 3, "now_and_then", before=odd)
    for _ in range(10 * guard.LIMIT):
        wrapped()
    assert not hooks.off


def test_a_log_that_raises_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise ZeroDivisionError

    hooks = Hooks("test", switched_off=failing)
    wrapped = hooks.wrap(lambda: 3, "log_raises", before=failing, failed=failing)
    for name in ("exception", "warning"):
        monkeypatch.setattr(guard.logger, name, failing)
    for _ in range(2 * guard.LIMIT):
        assert wrapped() == 3
    guard.count("log_raises_too", "text")
    assert hooks.off


def test_an_argument_is_found_however_it_is_given() -> None:
    def positional(self: Any, other: Any, request: Any = 5) -> None:
        """Return nothing; the request is a positional argument."""

    def keyword(self: Any, *, new: Any = 1, request: Any) -> None:
        """Return nothing; the request is a keyword argument."""

    read = argument(positional, 1, "request")
    assert read((0, 1, 2), {}) == 2
    assert read((0, 1), {"request": 3}) == 3
    assert read((0, 1), {}) == 5
    assert argument(positional, 1, "gone")((0, 1), {}) == 1
    assert argument(keyword, 1, "request")((0,), {"request": 4, "new": 9}) == 4
    with pytest.raises(TypeError, match=r"positional takes \['self', 'other', 'request'\]"):
        argument(positional, 3, "gone")


def test_an_exception_of_vllm_is_noted_and_reaches_its_caller() -> None:
    seen: list[Any] = []

    def fail(number: int) -> None:
        raise KeyboardInterrupt(number)

    def note(error: BaseException, args: Any, kwargs: Any) -> None:
        seen.append((type(error), args, kwargs))
        raise ZeroDivisionError  # must not replace the original exception

    wrapped = Hooks("test").wrap_errors(fail, "noting", note)
    with pytest.raises(KeyboardInterrupt):
        wrapped(number=3)
    assert seen == [(KeyboardInterrupt, (), {"number": 3})]
    assert Hooks("test").wrap_errors(abs, "noting", note)(-3) == 3
