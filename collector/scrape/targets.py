"""Discover targets to scrape: fixed addresses, targets in a file, or addresses of a DNS name.

Source: Prometheus, "<file_sd_config>" and "<dns_sd_config>"; Thanos (`dns+`, `dnssrv+`).
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import dns.asyncresolver
import dns.exception
import yaml

from collector.errors import SecurityError
from collector.normalise.values import MAX_TEXT_CHARS
from collector.scrape.credentials import OPEN, TargetCredentials
from collector.scrape.failure_reasons import DiscoveryError
from telemetry.bounded_yaml import MAX_EXPANDED_CHARACTERS, load_yaml
from telemetry.printable import printable

MAX_TARGETS: Final = 1_000
MAX_FILE_BYTES: Final = MAX_EXPANDED_CHARACTERS
LOOKUP_S: Final = 5.0
PATH: Final = "/metrics"
ALLOWED: Final = (
    "http://HOST:PORT[/metrics], dns+http://NAME:PORT[/metrics] for each address of a name,"
    " dnssrv+http://NAME[/metrics] for each SRV record of a name; the same with https"
)


class Target(NamedTuple):
    """A target to scrape. It has an address, the labels of its samples, and credentials."""

    url: str
    replica: str
    region: str | None = None
    access: TargetCredentials = OPEN


class Discovery(Protocol):
    """Finds targets."""

    @property
    def name(self) -> str:
        """The address or path that the user configured."""

    async def targets(self) -> Sequence[Target]:
        """Return the current targets.

        Raises:
            DiscoveryError: the targets cannot be found at the moment. The caller keeps the previous
                targets.
        """


def place(given: str, access: TargetCredentials = OPEN) -> Discovery:
    """The discovery for an argument of `--scrape`.

    Raises:
        ValueError: the address is invalid, or the token must not be sent to it.
    """
    scheme, separator, rest = given.partition("://")
    kind, plus, scheme = scheme.rpartition("+")
    url = f"{scheme}{separator}{rest}"
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        why = printable(str(error), MAX_TEXT_CHARS)
        raise ValueError(f"{_shown(given)}: {why}; allowed: {ALLOWED}") from error
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must not contain credentials, because addresses are logged")
    if (
        parts.scheme not in ("http", "https")
        or not host
        or (plus and kind not in ("dns", "dnssrv"))
        or parts.fragment
    ):
        raise ValueError(f"{_shown(given)} is not an address to scrape; allowed: {ALLOWED}")
    access.may_go(parts.scheme, host)
    path = (parts.path if parts.path not in ("", "/") else PATH) + (
        f"?{parts.query}" if parts.query else ""
    )
    if not plus:
        url = f"{parts.scheme}://{parts.netloc}{path}"
        return Fixed(given, (Target(url, parts.netloc, access=access),))
    if kind == "dns" and port is None:
        raise ValueError(f"{_shown(given)}: the port is missing; allowed: {ALLOWED}")
    if kind == "dns" and access.server_name is None:
        # Requests are sent to IP addresses, but a certificate contains the host name.
        access = replace(access, server_name=host)
    return DnsName(given, kind, parts.scheme, host, port, path, access=access)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Addresses that do not change."""

    name: str
    found: tuple[Target, ...]

    async def targets(self) -> Sequence[Target]:
        """See `Discovery`."""
        return self.found


@dataclass(frozen=True, slots=True)
class DnsName:
    """The addresses of a DNS name, or the hosts and ports of its SRV records."""

    name: str
    kind: str
    scheme: str
    host: str
    port: int | None
    path: str
    resolver: dns.asyncresolver.Resolver | None = None
    access: TargetCredentials = OPEN

    async def targets(self) -> Sequence[Target]:
        """See `Discovery`."""
        try:
            async with asyncio.timeout(LOOKUP_S):
                found = await (self._records() if self.kind == "dnssrv" else self._addresses())
        except (OSError, TimeoutError, dns.exception.DNSException) as error:
            why = str(error) or type(error).__name__
            raise DiscoveryError(f"{self.name}: {why}") from error
        return [
            Target(f"{self.scheme}://{where}{self.path}", where, access=self.access)
            for where in sorted(found)[:MAX_TARGETS]
        ]

    async def _addresses(self) -> set[str]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=1)
        addresses = {str(address[0]) for *_, address in found}
        return {
            f"[{each}]:{self.port}" if ":" in each else f"{each}:{self.port}" for each in addresses
        }

    async def _records(self) -> set[str]:
        resolver = self.resolver or dns.asyncresolver.Resolver()
        # Names may be relative, as is usual in Kubernetes. `_addresses` also allows this.
        answer = await resolver.resolve(self.host, "SRV", search=True, lifetime=LOOKUP_S)
        return {f"{record.target.to_text(omit_final_dot=True)}:{record.port}" for record in answer}


@dataclass(frozen=True, slots=True)
class File:
    """A Prometheus `file_sd` file (JSON or YAML). It is read again at each discovery.

    Labels other than `__scheme__`, `__metrics_path__`, `replica`, `region` and `credentials.LABELS`
    are ignored.

    Attributes:
        secrets: the folder that must contain every token file to which the target file refers. If
            None, it is the folder of the target file.
        insecure: whether tokens may be sent unencrypted.
    """

    path: Path
    secrets: Path | None = None
    insecure: bool = False

    @property
    def name(self) -> str:
        """See `Discovery`."""
        return str(self.path)

    async def targets(self) -> Sequence[Target]:
        """See `Discovery`."""
        return await asyncio.to_thread(self.read)

    def read(self) -> list[Target]:
        """The targets in the file.

        Raises:
            DiscoveryError: the file cannot be read, or has a wrong format.
        """
        try:
            with self.path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES + 1)
            if len(text) > MAX_FILE_BYTES:
                raise DiscoveryError(f"{self.path}: more than {MAX_FILE_BYTES} bytes")
            given = json.loads(text) if self.path.suffix == ".json" else load_yaml(text)
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            why = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            raise DiscoveryError(f"{self.path}: {why}") from error
        if not isinstance(given, list):
            raise DiscoveryError(f"{self.path}: must be a list of groups with `targets`")
        found = [
            target for number, group in enumerate(given) for target in self._group(number, group)
        ]
        if len(found) > MAX_TARGETS:
            raise DiscoveryError(f"{self.path}: {len(found)} targets; at most {MAX_TARGETS}")
        urls: dict[str, str] = {}
        for target in found:
            if (other := urls.setdefault(target.replica, target.url)) != target.url:
                raise DiscoveryError(
                    f"{self.path}: replica {_shown(target.replica)} names two targets,"
                    f" {_shown(other)} and {_shown(target.url)}; give each target its own `replica`"
                )
        return found

    def _group(self, number: int, group: Any) -> list[Target]:
        where = f"{self.path}: [{number}]"
        if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
            raise DiscoveryError(f"{where}: must have `targets`, a list of HOST:PORT")
        labels = group.get("labels") or {}
        if not isinstance(labels, dict):
            raise DiscoveryError(f"{where}.labels: must be a mapping of texts")
        scheme = labels.get("__scheme__", "http")
        path = labels.get("__metrics_path__", PATH)
        names = {}
        for label in ("replica", "region"):
            value = labels.get(label)
            if value is not None and not isinstance(value, str):
                raise DiscoveryError(f"{where}.labels.{label}: {_shown(value)} is not a text")
            names[label] = (value or "")[:MAX_TEXT_CHARS].replace("\x00", "\ufffd") or None
        try:
            access = TargetCredentials.of_labels(
                labels, self.path.parent, self.secrets, insecure=self.insecure
            )
        except SecurityError as error:
            raise DiscoveryError(f"{where}.labels: {error}") from error
        found = []
        for target in group["targets"]:
            if not isinstance(target, str) or "://" in target or not isinstance(path, str):
                raise DiscoveryError(f"{where}: {_shown(target)} is not HOST:PORT")
            try:
                plain = _fixed_target(f"{scheme}://{target}/{path.removeprefix('/')}", access)
            except ValueError as error:
                raise DiscoveryError(f"{where}: {error}") from error
            several = len(group["targets"]) > 1
            replica = names["replica"]
            if replica is not None and several:
                raise DiscoveryError(
                    f"{where}.labels.replica: {_shown(replica)} names several targets; give each"
                    " target its own group"
                )
            found.append(plain._replace(replica=replica or plain.replica, region=names["region"]))
        return found


def _shown(value: object) -> str:
    return printable(repr(value), MAX_TEXT_CHARS)


def _fixed_target(url: str, access: TargetCredentials) -> Target:
    found = place(url, access)
    if not isinstance(found, Fixed):
        raise ValueError(f"{_shown(url)}: allowed for `__scheme__`: http, https")
    (target,) = found.found
    return target
