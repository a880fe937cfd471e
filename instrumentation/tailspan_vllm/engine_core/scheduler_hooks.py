"""The wrappers around the methods of vLLM's scheduler.

Source: vllm/v1/core/sched/scheduler.py, 0.12 to 0.33.
"""

import time
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from tailspan_vllm import guard
from tailspan_vllm.engine_core.observer import EngineObserver
from tailspan_vllm.guard import Arguments, Keywords

_READ = ("requests", "has_unfinished_requests", "running", "waiting", "vllm_config")

_READ_OF_OUTPUT = ("num_scheduled_tokens", "scheduled_new_reqs", "scheduled_cached_reqs")
_READ_OF_CACHED = ("num_computed_tokens", "resumed_req_ids")


def install(make_observer: Callable[[Any], EngineObserver], *, early: bool = False) -> list[str]:
    """Wrap the methods of vLLM's scheduler.

    Args:
        make_observer: called with the scheduler when the scheduler is created. At the first
            request, the front ends already look for the observer's link.
        early: True to observe from the creation of the scheduler, False to observe from the first
            request.

    Returns: the methods that this vLLM lacks. Nothing is wrapped unless `schedule`,
    `update_from_output` and `_free_request` exist.
    """
    from vllm.v1.core.sched.scheduler import Scheduler

    return install_on(Scheduler, make_observer, early=early)


def install_on(
    scheduler_class: Any, make_observer: Callable[[Any], EngineObserver], *, early: bool = False
) -> list[str]:
    """Wrap the methods of a scheduler class. See `install`."""
    hooks = _SchedulerHooks(make_observer, early)
    wrapped: dict[str, Any] = {}
    missing: list[str] = []
    for name, wrap in (
        ("__init__", hooks.created),
        ("schedule", hooks.schedule),
        ("update_from_output", hooks.update_from_output),
        ("_free_request", hooks.free_request),
        ("_preempt_request", hooks.preempt_request),
        ("add_request", hooks.add_request),
    ):
        original = getattr(scheduler_class, name, None)
        try:
            if not callable(original) or iscoroutinefunction(original):
                raise TypeError("no such method")
            wrapped[name] = wrap(original)
        except (TypeError, ValueError) as error:
            missing.append(f"{scheduler_class.__name__}.{name} ({error})")
    # Without a hook for the end of requests, tracks would never be removed.
    if {"schedule", "update_from_output", "_free_request"} <= wrapped.keys():
        for name, wrapper in wrapped.items():
            setattr(scheduler_class, name, wrapper)
    return missing


class _SchedulerHooks:
    def __init__(self, make_observer: Callable[[Any], EngineObserver], early: bool) -> None:
        self._make = make_observer
        self._early = early
        self._made: EngineObserver | None = None
        self._observer: EngineObserver | None = None
        self._probed = False
        self._hooks = guard.Hooks("step ledger", switched_off=self._give_up)

    def created(self, original: Any) -> Any:
        def after(_: None, result: Any, args: Arguments, kwargs: Keywords) -> None:
            if self._made is None:
                self._made = self._make(args[0])
                if self._early:
                    self._begin(args[0])

        return self._hooks.wrap(original, "scheduler", after=after)

    def schedule(self, original: Any) -> Any:
        def before(args: Arguments, kwargs: Keywords) -> float:
            if self._observer is None:
                self._begin(args[0])
            return time.monotonic()

        def after(at: float, output: Any, args: Arguments, kwargs: Keywords) -> None:
            observer = self._observer
            if observer is not None and (self._probed or self._fits(output)):
                observer.scheduled(args[0], output, at)

        return self._hooks.wrap(
            original, "schedule", before=before, after=after, failed=self._lose_track
        )

    def update_from_output(self, original: Any) -> Any:
        output_of = guard.argument(original, 1, "scheduler_output")

        def before(args: Arguments, kwargs: Keywords) -> None:
            if self._observer is not None:
                self._observer.in_update = True

        def after(_: None, results: Any, args: Arguments, kwargs: Keywords) -> None:
            if self._observer is not None:
                self._observer.ended(args[0], output_of(args, kwargs), results)

        return self._hooks.wrap(
            original, "update_from_output", before=before, after=after, failed=self._lose_track
        )

    def add_request(self, original: Any) -> Any:
        request_of = guard.argument(original, 1, "request")

        def before(args: Arguments, kwargs: Keywords) -> None:
            if self._observer is None:
                self._begin(args[0])
            if self._observer is not None:
                request = request_of(args, kwargs)
                self._observer.queued(request.request_id)
                self._observer.began(args[0], request)

        def refused(_: BaseException, args: Arguments, kwargs: Keywords) -> None:
            if self._observer is not None:
                self._observer.refused(args[0], request_of(args, kwargs))

        watched = self._hooks.wrap_errors(original, "add_request_refused", refused)
        return self._hooks.wrap(watched, "add_request", before=before)

    def free_request(self, original: Any) -> Any:
        request_of = guard.argument(original, 1, "request")

        def before(args: Arguments, kwargs: Keywords) -> None:
            if self._observer is not None:
                request = request_of(args, kwargs)
                self._observer.ends(args[0], request)
                self._observer.freed(request.request_id)

        return self._hooks.wrap(original, "free_request", before=before)

    def preempt_request(self, original: Any) -> Any:
        request_of = guard.argument(original, 1, "request")

        def before(args: Arguments, kwargs: Keywords) -> None:
            if self._observer is not None:
                self._observer.preempted(request_of(args, kwargs).request_id)

        return self._hooks.wrap(original, "preempt_request", before=before)

    def _begin(self, scheduler: Any) -> None:
        lacking = guard.missing(scheduler, _READ)
        if lacking:
            self._hooks.switch_off(f"this vLLM lacks {', '.join(lacking)}")
            return
        try:
            self._observer = self._made = self._made or self._make(scheduler)
            self._observer.introduce(scheduler)
        except Exception:
            guard.note_failure("introduce")
            self._hooks.switch_off("the observer could not be started")

    def _fits(self, output: Any) -> bool:
        """Check once that a step has the attributes that the ledger reads."""
        lacking = guard.missing(output, _READ_OF_OUTPUT)
        lacking += guard.missing(getattr(output, "scheduled_cached_reqs", None), _READ_OF_CACHED)
        if lacking:
            self._hooks.switch_off(f"this vLLM lacks {', '.join(lacking)}")
        self._probed = True
        return not lacking

    def _lose_track(self) -> None:
        if self._observer is not None:
            self._observer.lose_track()

    def _give_up(self) -> None:
        observer, self._observer = self._made, None
        if observer is not None:
            observer.close()
