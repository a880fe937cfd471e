"""The prober's plan: what to probe, how often, and with which budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from probe.errors import ProbeFailure

MAX_KEY_BYTES: Final = 16_384
"""Maximum size of a key file in bytes. An OAuth token has up to a few kilobytes."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where an endpoint's key is read from.

    A file is read for each probe, so that the key can be replaced while the prober runs.
    """

    variable: str | None = None
    file: Path | None = None

    def read(self, environment: Mapping[str, str]) -> str:
        """Return the key. Raise ProbeFailure if there is no key. The error never contains a key."""
        if self.variable is not None:
            where, written = f"key_env {self.variable}", environment.get(self.variable, "")
        else:
            where = f"key_file {self.file}"
            written = self._written(where)
        key = written.strip()
        if not key:
            raise ProbeFailure("key", f"{where} is empty or not set; allowed: a key")
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise ProbeFailure(
                "key", f"{where} is not a key; allowed: printable ASCII characters without spaces"
            )
        return key

    def _written(self, where: str) -> str:
        assert self.file is not None
        try:
            with self.file.open("rb") as file:
                written = file.read(MAX_KEY_BYTES + 1)
        except OSError as error:
            raise ProbeFailure("key", f"{where} cannot be read: {error.strerror}") from error
        if len(written) > MAX_KEY_BYTES:
            raise ProbeFailure("key", f"{where} has more than {MAX_KEY_BYTES:,} bytes")
        return written.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint, with a unique name.

    `kind` is a key of `probe.protocols.PROTOCOLS`. `url` is the base address. An endpoint has
    either `prompt_tokens`, which is an approximate length, or `prompt_text`.
    """

    name: str
    kind: str
    url: str
    model: str
    max_tokens: int
    prompt_tokens: int | None = None
    prompt_text: str | None = None
    key: KeySource | None = None


@dataclass(frozen=True, slots=True)
class DailyLimits:
    """The daily budget. A value of None means that there is no limit."""

    usd_per_day: float | None = None
    tokens_per_day: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self.usd_per_day is not None or self.tokens_per_day is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """The content of a file of probes.

    Attributes:
        every_s: seconds between two probes of an endpoint. It is also the time limit of a probe.
        limits: the daily budget of all endpoints together.
        results_url: the OTLP/HTTP address for results. If None, results are only printed.
    """

    region: str
    every_s: float
    endpoints: tuple[Endpoint, ...]
    limits: DailyLimits = DailyLimits()
    results_url: str | None = None
