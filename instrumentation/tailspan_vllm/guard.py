"""The observer does no harm: nothing of ours raises into vLLM, and each failure is counted.

What we put in the place of a method of vLLM's is made here and nowhere else (`Hooks`): it calls
the original exactly once, with exactly the arguments given, and returns or raises what that
does. All that is ours runs before or after it, within a guard.
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
After = Callable[[Any, Any, Arguments, Keywords], None]

LIMIT: Final = 100
"""Failures in a row after which hooks are switched off. One odd request fails once; a vLLM that
does not fit fails each time, and at a hundred steps a second that is one second."""

failures: Counter[str] = Counter()
"""Failures of our own code by hook name, reported with every engine sample."""

_FAILED: Final = object()


def note_failure(hook: str) -> None:
    """Count the exception that is being handled; the first of each hook is logged."""
    with suppress(Exception):  # a log handler may raise, too
        failures[hook] += 1
        if failures[hook] == 1:
            logger.exception("tailspan: %s failed; serving goes on without it", hook)


def count(event: str, message: str) -> None:
    """Count something that was refused or dropped; the first of each is logged.

    Args:
        event: the name under which it is counted, with the failures.
        message: what the log says.
    """
    with suppress(Exception):
        failures[event] += 1
        if failures[event] == 1:
            logger.warning("%s; further ones are only counted (hook failures: %s)", message, event)


def harmless(hook: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a procedure swallow and count whatever it raises; the first of each hook is logged.

    Args:
        hook: the name under which failures are counted.
    """

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
    """Hooks that are of use only together: they are switched off together.

    Args:
        what: what is lost without them, for the log.
        failed: called after a failure, with the arguments of the call that was watched.
        switched_off: called when they have been switched off.
    """

    def __init__(
        self,
        what: str,
        *,
        failed: Callable[[Arguments, Keywords], None] | None = None,
        switched_off: Callable[[], None] | None = None,
    ) -> None:
        self.off = False
        self._what = what
        self._failed = failed
        self._switched_off = switched_off
        self._in_a_row: Counter[int] = Counter()

    def around(
        self, original: Any, hook: str, *, before: Before | None = None, after: After | None = None
    ) -> Any:
        """Wrap a function of vLLM's.

        Args:
            original: the function.
            hook: the name under which failures are counted.
            before: called with the arguments, as a tuple and a dictionary.
            after: called with what `before` returned, the result, and the arguments; not where
                the original raised.
        """
        enter, leave = self._guarded(hook, before), self._guarded(hook, after)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            seen = enter(args, kwargs)
            result = original(*args, **kwargs)
            leave(seen, result, args, kwargs)
            return result

        return wrapper

    def changing(
        self, original: Any, hook: str, change: Callable[[Any, Arguments, Keywords], Any]
    ) -> Any:
        """Wrap a function whose result is to be replaced; where that fails it is returned as is.

        Args:
            original: the function.
            hook: the name under which failures are counted.
            change: called with the result and the arguments.
        """
        changed = self._guarded(hook, change)

        @wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            other = changed(result, args, kwargs)
            return result if other is _FAILED else other

        return wrapper

    def switch_off(self, why: str) -> None:
        """Do nothing from now on but call the originals; the log says why."""
        if self.off:
            return
        self.off = True
        with suppress(Exception):
            logger.warning("tailspan: %s: switched off, serving goes on: %s", self._what, why)
        if self._switched_off is not None:
            harmless("switch_off")(self._switched_off)()

    def _guarded(self, hook: str, step: Callable[..., Any] | None) -> Callable[..., Any]:
        if step is None:
            return _nothing
        in_a_row, number = self._in_a_row, id(step)

        def guarded(*given: Any) -> Any:
            if self.off or given[0] is _FAILED:
                return _FAILED
            try:
                value = step(*given)
            except Exception:
                self._note(hook, number, given)
                return _FAILED
            if number in in_a_row:
                del in_a_row[number]
            return value

        return guarded

    def _note(self, hook: str, number: int, given: Arguments) -> None:
        note_failure(hook)
        self._in_a_row[number] += 1
        if self._failed is not None:
            harmless(hook)(self._failed)(given[-2], given[-1])
        if self._in_a_row[number] >= LIMIT:
            self.switch_off(f"{hook} failed {LIMIT} times in a row")


def argument(original: Any, position: int, *known_as: str) -> Callable[[Arguments, Keywords], Any]:
    """Make a reader of one argument of a function of vLLM's, however it is called.

    Args:
        original: the function.
        position: which argument it is where none has a known name; 0 is the first, `self`.
        known_as: its names; a parameter with one of these goes before the position.

    Raises:
        TypeError: the function has neither such a name nor such a position.
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


def missing(thing: Any, names: tuple[str, ...]) -> list[str]:
    """The attributes that an object lacks, named in full."""
    return [f"{type(thing).__name__}.{name}" for name in names if not hasattr(thing, name)]


def _nothing(*_: Any) -> None:
    """There is nothing to do."""
