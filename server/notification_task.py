"""Send notifications. Each channel has its own thread, so that a slow channel does not delay other
channels.

Only the holder of the lease on notifications fills and delivers the outbox (the stored messages).
An interrupted delivery is repeated after the next start, or by the next holder.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Engine

from alerts.notify.channel_sender import Attempt, ChannelSender, DeliveryResult
from alerts.notify.channels import Channel
from alerts.notify.http_post import ChannelPoster
from alerts.notify.message import Transition
from alerts.notify.notifier import LikelyCause, Notifier
from alerts.objectives import Objective
from store.errors import LeaseLost
from store.leases import NOTIFICATION, Leases, LeaseTerm
from telemetry.store_errors import StoreError
from telemetry.tasks import Task

POLL_S = 5.0
"""Maximum number of seconds between two checks of the outbox. New messages wake the thread."""
GRACE_S = 2.0
OUTBOX = "outbox"

_log = logging.getLogger(__name__)


class NotificationTask:
    """The threads that write messages to the outbox after each evaluation, and deliver them.

    Args:
        explorer_url: the explorer's address for links. Without it, messages contain no links.
        print_line: prints a line. Its second argument is whether the line is an error.
    """

    def __init__(
        self,
        engine: Engine,
        objectives: Sequence[Objective],
        channels: Sequence[Channel],
        *,
        explorer_url: Callable[[], str | None],
        print_line: Callable[[str, bool], None],
        leases: Leases,
        clock_unix_ns: Callable[[], int] = time.time_ns,
        likely_cause: LikelyCause = lambda _objective, _incident, _at_s: None,
    ) -> None:
        self._evaluated = threading.Event()
        self._notifier = Notifier(
            engine,
            objectives,
            channels,
            explorer_url=explorer_url,
            likely_cause=likely_cause,
        )
        self._print_line = print_line
        self._clock_unix_ns = clock_unix_ns
        self._leases = leases
        self._term: LeaseTerm | None = None
        """The token of the lease during which this process last filled the outbox."""
        self._stop = threading.Event()
        self._senders = [
            ChannelSender(
                engine,
                channel,
                ChannelPoster(channel),
                newest=self._notifier.newest,
                clock_s=lambda: clock_unix_ns() / 1e9,
            )
            for channel in channels
        ]
        self._wakes = [threading.Event() for _ in channels]
        self.tasks = {name: Task(f"notify {name}") for name in (OUTBOX, *map(_name, channels))}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the outbox thread."""
        self._start(OUTBOX, self._fill_outbox)

    def evaluated(self) -> None:
        """Wake the outbox thread after an evaluation or a new likely cause."""
        self._evaluated.set()

    def stop(self) -> None:
        """Start no new deliveries, and wait up to `GRACE_S` for the current deliveries."""
        self._stop.set()
        for event in (self._evaluated, *self._wakes):
            event.set()
        deadline = time.monotonic() + GRACE_S
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def counts(self) -> dict[tuple[str, str], int]:
        """Maps a channel and a result to the number of deliveries since the start."""
        return {
            (sender.channel.name, str(result)): count
            for sender in self._senders
            for result, count in sender.counts.items()
        }

    def oldest_pending_s(self) -> dict[str, float]:
        """Maps each channel to the age of its oldest undelivered message. The result is {} if this
        process does not hold the lease."""
        if self._leases.term(NOTIFICATION) is None:
            return {}
        now_s = self._clock_unix_ns() / 1e9
        return {
            sender.channel.name: max(0.0, now_s - (sender.oldest_pending_unix_s or now_s))
            for sender in self._senders
        }

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"notify-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        self.tasks[name].alive = thread.is_alive

    def _fill_outbox(self) -> None:
        delivering = False
        while self._evaluated.wait() and not self._stop.is_set():
            self._evaluated.clear()
            if not self._survives(self._enqueue, OUTBOX):
                continue
            if not delivering:
                # Wait for the first evaluation, because incidents may have ended while Tailspan did
                # not run.
                for sender, wake in zip(self._senders, self._wakes, strict=True):
                    self._start(sender.channel.name, partial(self._run, sender, wake))
                delivering = True
            for wake in self._wakes:
                wake.set()

    def _enqueue(self) -> None:
        with self._leases.acting(NOTIFICATION) as term:
            if term is None:
                return
            if term != self._term:
                self._notifier.begin()
                self._term = term
            self._notifier.enqueue(self._clock_unix_ns() // 10**9)

    def _run(self, sender: ChannelSender, wake: threading.Event) -> None:
        def deliver() -> None:
            with self._leases.acting(NOTIFICATION) as term:
                # Wait until this process has filled the outbox since it took the lease. Older
                # messages may be outdated.
                if term is None or term != self._term:
                    return
                ended = partial(self._ended, term)
                for attempt in sender.deliver(ended, term.token):
                    self._report_attempt(sender.channel, attempt)

        while not self._stop.is_set():
            wake.clear()
            self._survives(deliver, sender.channel.name)
            wake.wait(POLL_S)

    def _ended(self, term: LeaseTerm) -> bool:
        return self._stop.is_set() or self._leases.term(NOTIFICATION) != term

    def _survives(self, step: Callable[[], None], name: str) -> bool:
        """Run `step`, and return whether it succeeded. Exceptions are logged and not raised."""
        task = self.tasks[name]
        try:
            step()
        except LeaseLost as error:
            _log.info("%s: %s", task.name, error)
        except StoreError as error:
            task.failed(error)
            _log.warning("%s: the outbox cannot be used: %s", task.name, error)
        except Exception as error:  # a defect
            task.failed(error)
            _log.exception("%s: a step failed; trying again", task.name)
        else:
            task.succeeded(time.time())
            return True
        return False

    def _report_attempt(self, channel: Channel, attempt: Attempt) -> None:
        line = sentence(channel, attempt)
        if line is not None:
            self._print_line(line, attempt.result is not DeliveryResult.DELIVERED)


def _name(channel: Channel) -> str:
    return channel.name


def sentence(channel: Channel, attempt: Attempt) -> str | None:
    """A line about a delivery, or None if the same line was printed before."""
    row = attempt.row
    what = f"the {row.severity} of objective {row.slo}"
    if row.transition == Transition.RESOLVED:
        what = f"the end of {what}"
    match attempt.result:
        case DeliveryResult.DELIVERED:
            return None if attempt.repeat else f"notified {channel.name}: {what}"
        case DeliveryResult.FAILED:
            if row.failures > 1:
                return None
            return f"could not notify {channel.name}: {what} ({attempt.answer}); trying again"
    return f"gave up notifying {channel.name}: {what} ({attempt.answer}); see tailspan slo status"
