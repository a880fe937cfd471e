"""Catches and counts the plugin's exceptions, so that vLLM receives none of them.

`Hooks` creates every wrapper that replaces a method of vLLM. A wrapper calls the original exactly
once, with the same arguments, and returns its result or raises its exception. The plugin's own code
runs before or after the original, inside a guard.
"""

import inspect
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Final, ParamSpec

logger = logging.getLogger("vllm.tailspan")

P = ParamSpec("P")

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Before = Callable[[Arguments, Keywords], Any]
After = Callable[[Any, Any, Arguments, Keywords], Any]

LIMIT: Final = 100
"""Hooks are switched off after this many consecutive failures. An incompatible hook fails this
often in about a second."""

failures: Counter[str] = Counter()
"""Maps each hook's name to the failures of the plugin's own code."""

_FAILED: Final = object()


def note_failure(hook: str) -> None:
    """Count the current exception for a hook. The hook's first exception is logged."""
    with suppress(Exception):  # a log handler may raise an exception too
        failures[hook] += 1
        if failures[hook] == 1:
            logger.exception("tailspan: %s failed; vLLM continues without it", hook)


def count(event: str, message: str) -> None:
    """Count an event as a hook failure. The first event with each name is logged."""
    with suppress(Exception):
        failures[event] += 1
        if failures[event] == 1:
            logger.warning(
                "%s; further events are only counted (hook failures: %s)", message, event
            )


def catch_exceptions(hook: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate a function: count its exceptions, and log the first exception."""

    def decorate(procedure: Callable[P, None]) -> Callable[P, None]:
        @wraps(procedure)
        def safe(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                procedure(*args, **kwargs)
            except Exception:
                note_failure(hook)

        return safe

    return decorate


class Hooks:
    """A group of interdependent hooks. `switched_off` is called once, after the hooks are switched
    off."""

    def __init__(
        self,
        what: str,
        *,
        switched_off: Callable[[], None] | None = None,
    ) -> None:
        self.off = False
        self._what = what
        self._switched_off = switched_off

    def wrap(
        self,
        original: Any,
        hook: str,
        *,
        before: Before | None = None,
        after: After | None = None,
        failed: Callable[[], None] | None = None,
    ) -> Any:
        """Wrap a function of vLLM.

        Args:
            before: called with the original's arguments.
            after: called with the result of `before`, the original's result and its arguments. It
                is not called if the original raised.
            failed: called if `before` or `after` failed.
        """
        if after is None:
            assert before is not None
            return self._wrap_before(original, self._before(hook, before, failed))
        if before is None:
            return self._wrap_after(original, self._after(hook, after, failed))
        enter, leave = self._before(hook, before, failed), self._after(hook, after, failed)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            seen = enter(args, kwargs)
            result = original(*args, **kwargs)
            leave(seen, result, args, kwargs)
            return result

        return wrapper

    def _wrap_before(self, original: Any, enter: Before) -> Any:
        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            enter(args, kwargs)
            return original(*args, **kwargs)

        return wrapper

    def _wrap_after(self, original: Any, leave: After) -> Any:
        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            leave(None, result, args, kwargs)
            return result

        return wrapper

    def wrap_result(
        self, original: Any, hook: str, change: Callable[[Any, Arguments, Keywords], Any]
    ) -> Any:
        """Wrap a function of vLLM so that `change` replaces its result. If `change` fails, the
        result stays unchanged."""
        changed = self._after(hook, lambda _, result, args, kwargs: change(result, args, kwargs))

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            other = changed(None, result, args, kwargs)
            return result if other is _FAILED else other

        return wrapper

    def wrap_errors(self, original: Any, hook: str, note: Callable[..., None]) -> Any:
        """Wrap a function of vLLM so that `note` receives its exceptions before the caller."""

        def noted(_: Any, error: Any, args: Arguments, kwargs: Keywords) -> None:
            note(error, args, kwargs)

        seen = self._after(hook, noted)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                seen(None, error, args, kwargs)
                raise

        return wrapper

    def switch_off(self, why: str) -> None:
        """Switch all hooks off. From then on, only the original functions run."""
        if self.off:
            return
        self.off = True
        with suppress(Exception):
            logger.warning("tailspan: %s: switched off; vLLM continues: %s", self._what, why)
        if self._switched_off is not None:
            catch_exceptions("switch_off")(self._switched_off)()

    # A `*given` parameter would take twice as long at every step, so this function is separate.

    def _before(self, hook: str, step: Before, failed: Callable[[], None] | None) -> Before:
        in_a_row = 0

        def guarded(args: Arguments, kwargs: Keywords) -> Any:
            nonlocal in_a_row
            if self.off:
                return _FAILED
            try:
                value = step(args, kwargs)
            except Exception:
                in_a_row += 1
                self._note(hook, in_a_row, failed)
                return _FAILED
            in_a_row = 0
            return value

        return guarded

    def _after(self, hook: str, step: After, failed: Callable[[], None] | None = None) -> After:
        in_a_row = 0

        def guarded(seen: Any, result: Any, args: Arguments, kwargs: Keywords) -> Any:
            nonlocal in_a_row
            if seen is _FAILED or self.off:
                return _FAILED
            try:
                value = step(seen, result, args, kwargs)
            except Exception:
                in_a_row += 1
                self._note(hook, in_a_row, failed)
                return _FAILED
            in_a_row = 0
            return value

        return guarded

    def _note(self, hook: str, in_a_row: int, failed: Callable[[], None] | None) -> None:
        note_failure(hook)
        if failed is not None:
            catch_exceptions(hook)(failed)()
        if in_a_row >= LIMIT:
            self.switch_off(f"{hook} failed {LIMIT} times in a row")


def argument(original: Any, position: int, *known_as: str) -> Callable[[Arguments, Keywords], Any]:
    """A function that extracts one argument from a call of a vLLM function.

    Args:
        position: the argument's position, used if no parameter has a name in `known_as`. The
            position of `self` is 0.

    Raises:
        TypeError: the function has no such parameter.
    """
    parameters = inspect.signature(original).parameters
    names = list(parameters)
    position = next((names.index(name) for name in known_as if name in names), position)
    if position >= len(names):
        raise TypeError(f"{getattr(original, '__qualname__', original)} takes {names}")
    parameter = parameters[names[position]]
    by_position = parameter.kind is not parameter.KEYWORD_ONLY

    def read(args: Arguments, kwargs: Keywords) -> Any:
        if by_position and position < len(args):
            return args[position]
        if parameter.default is parameter.empty:
            return kwargs[parameter.name]
        return kwargs.get(parameter.name, parameter.default)

    return read


def missing(owner: Any, names: tuple[str, ...]) -> list[str]:
    """The attributes that an object lacks, each as `Type.name`."""
    return [f"{type(owner).__name__}.{name}" for name in names if not hasattr(owner, name)]
