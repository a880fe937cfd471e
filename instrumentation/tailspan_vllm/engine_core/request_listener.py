"""The interface of code that reports requests from the engine core, without a front end."""

from typing import Any, Protocol

from tailspan_vllm.engine_core.link_messages import Identity


class RequestListener(Protocol):
    """Receives the events of each request (the scheduler's `Request`). No method raises
    exceptions."""

    def introduced(self, identity: Identity) -> None:
        """Receive the properties of the engine, before the first request."""

    def began(self, scheduler: Any, request: Any) -> None:
        """Receive a request that is about to enter the scheduler's queue."""

    def admitted(self, request: Any) -> None:
        """Receive a request that joined the batch for the first time."""

    def preempted(self, request_id: str) -> None:
        """Receive a preemption."""

    def ended(self, request: Any) -> None:
        """Receive a request that has finished or been aborted."""

    def stepped(self, results: Any) -> None:
        """Receive the outputs of a step for each front end."""

    def closed(self) -> None:
        """Stop, because the hooks are switched off. No more events follow."""
