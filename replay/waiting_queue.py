"""Implement the queue of an engine with the policy `priority`.

Pure. The queue has the methods of a deque that the scheduler uses. As in vLLM, a preempted request
gets the place that its priority determines. Source: vLLM v1/core/sched/request_queue.py.
"""

import heapq
from collections.abc import Iterator

from replay.job import Job


class PriorityQueue:
    """Waiting jobs, sorted by priority (lowest value first), then by time of arrival."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, float, int], Job]] = []

    def append(self, job: Job) -> None:
        """Add a job."""
        heapq.heappush(self._heap, (job.order, job))

    def appendleft(self, job: Job) -> None:
        """Add a job. Same as `append`."""
        self.append(job)

    def popleft(self) -> Job:
        """Remove and return the first job."""
        return heapq.heappop(self._heap)[1]

    def remove(self, job: Job) -> None:
        """Remove a job."""
        self._heap = [each for each in self._heap if each[1] is not job]
        heapq.heapify(self._heap)

    def __getitem__(self, place: int) -> Job:
        return self._heap[place][1]

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, job in sorted(self._heap, key=lambda each: each[0]))
