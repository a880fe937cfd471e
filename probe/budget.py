"""The daily budget for probes (per UTC day), in tokens and US dollars. Probes never exceed it.

Before a probe, its maximum cost is reserved in a file. The maximum is one token per byte of the
request, plus `max_tokens`. A probe is not sent if its maximum cost exceeds the remaining budget.
After the probe, the usage that the server reported replaces the reservation, unless the usage is
higher. If the server reports no usage, or if the prober is killed, the reservation counts as spent.
The file is locked, because otherwise two probers could each spend the whole budget.
"""

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Self

from probe.errors import PlanError
from probe.plan import DailyLimits, Endpoint
from probe.prices import PriceOf, ProbeTokens

_RECORD_BYTES: Final = 256
"""The fixed size of the record, so that a single write replaces the content."""


@dataclass(frozen=True, slots=True)
class BudgetReservation:
    """The maximum cost of a probe. `usd` is None if the price is unknown."""

    day: date
    tokens: int
    usd: float | None


class ProbeBudget:
    """Reserves the maximum cost of a probe, then records the real cost.

    `path` is the file with today's spending, or None if there is no limit.

    Raises:
        PlanError: the file cannot be used.
    """

    def __init__(
        self,
        limits: DailyLimits,
        price_of: PriceOf,
        path: Path | None,
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),
    ) -> None:
        self._limits, self._price_of, self._today = limits, price_of, today
        self._day, self._tokens, self._usd = today(), 0, 0.0
        self._file: int | None = None
        if limits.any:
            assert path is not None
            self._open(path)

    def reserve(self, endpoint: Endpoint, request_bytes: int) -> BudgetReservation | None:
        """Reserve the maximum cost, or return None if the budget is too small."""
        self._turn_the_day()
        most = ProbeTokens(request_bytes, endpoint.max_tokens)
        tokens, usd = most.prompt + most.output, self._price_of(endpoint, most)
        limits = self._limits
        if limits.tokens_per_day is not None and self._tokens + tokens > limits.tokens_per_day:
            return None
        if limits.usd_per_day is not None:
            if usd is None and limits.tokens_per_day is None:
                return None
            if self._usd + (usd or 0.0) > limits.usd_per_day:
                return None
        self._add(tokens, usd or 0.0)
        return BudgetReservation(self._day, tokens, usd)

    def settle(
        self, reserved: BudgetReservation, endpoint: Endpoint, used: ProbeTokens | None
    ) -> None:
        """Replace the reservation by the usage that was reported, unless `used` is None or more
        than the reservation. A server could otherwise spend the budget of the other endpoints."""
        self._turn_the_day()
        if used is None or reserved.day != self._day:
            return
        usd = self._price_of(endpoint, used)
        self._add(
            min(used.prompt + used.output - reserved.tokens, 0),
            0.0 if usd is None or reserved.usd is None else min(usd - reserved.usd, 0.0),
        )

    def cancel(self, reserved: BudgetReservation) -> None:
        """Cancel the reservation of a request that was not sent."""
        self._turn_the_day()
        if reserved.day == self._day:
            self._add(-reserved.tokens, -(reserved.usd or 0.0))

    @property
    def spent(self) -> tuple[int, float]:
        """The tokens and US dollars that were spent today, including reservations."""
        self._turn_the_day()
        return self._tokens, self._usd

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PlanError(
                f"{path}: the spent budget cannot be stored: {error.strerror}; allowed: a path that"
                " this user can write to, with --state"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise PlanError(
                f"{path}: another tailspan probe spends this budget; stop it, or set another path"
                " with --state"
            ) from error
        written = os.pread(self._file, _RECORD_BYTES + 1, 0)
        if written:
            try:
                self._read(json.loads(written))
            except (ValueError, KeyError, TypeError) as error:
                self.close()
                raise PlanError(
                    f"{path}: not a record of a spent budget; delete the file to begin this day's"
                    " budget anew"
                ) from error

    def _read(self, record: dict[str, Any]) -> None:
        day, tokens, usd = date.fromisoformat(record["day"]), record["tokens"], record["usd"]
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
            raise ValueError
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e12:
            raise ValueError
        # If the record is from a later day, the clock was set back. What was spent on that day
        # still counts.
        if day >= self._day:
            self._day, self._tokens, self._usd = day, tokens, float(usd)

    def _turn_the_day(self) -> None:
        today = self._today()
        if today > self._day:
            self._day, self._tokens, self._usd = today, 0, 0.0
            self._write()

    def _add(self, tokens: int, usd: float) -> None:
        self._tokens = max(self._tokens + tokens, 0)
        self._usd = max(self._usd + usd, 0.0)
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        record = {"day": self._day.isoformat(), "tokens": self._tokens, "usd": self._usd}
        os.pwrite(self._file, json.dumps(record).ljust(_RECORD_BYTES).encode(), 0)


def unpriced(endpoint: Endpoint, limits: DailyLimits, price_of: PriceOf) -> bool:
    """Whether the budget is in dollars only and the price of the endpoint is unknown."""
    if limits.usd_per_day is None or limits.tokens_per_day is not None:
        return False
    return price_of(endpoint, ProbeTokens(1, 1)) is None
