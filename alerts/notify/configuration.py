"""Read `notify.yaml`: the channels, and the severities that each channel receives.

Addresses and keys are in the file itself (`url`), in an environment variable (`url_env`) or in
another file (`url_file`). Error messages never contain them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from alerts.errors import AlertsError, DocumentError, shown
from alerts.explorer_links import EXPLORER_KEY
from alerts.notify import pagerduty
from alerts.notify.channels import Channel, ReceiverType
from alerts.policy import SEVERITIES
from alerts.secrets import SOURCES, Secret, read_secret
from alerts.strict_yaml import MappingReader
from alerts.yaml_files import read_file
from telemetry.addresses import INSECURE_KEY, exposes

MAX_CHANNELS: Final = 32

_SECRETS: Final[Mapping[ReceiverType, tuple[str, ...]]] = {
    ReceiverType.ALERTMANAGER: ("url", "authorization"),
    ReceiverType.WEBHOOK: ("url", "authorization", "signing_key"),
    ReceiverType.SLACK: ("url",),
    ReceiverType.PAGERDUTY: ("url", "routing_key"),
}
"""For each kind of channel, the keys whose values are secret."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The channels, and the explorer's address for links, if given."""

    channels: tuple[Channel, ...]
    explorer_url: str | None = None


def load_configuration(path: Path, environ: Mapping[str, str]) -> Configuration:
    """Read a file.

    Args:
        path: paths in the file are relative to its folder.
        environ: the environment variables for `…_env`. `EXPLORER_KEY` has the address of the
            explorer, if the file does not contain it.

    Raises:
        AlertsError: the file or `EXPLORER_KEY` is invalid, or a reference does not exist.
        OSError: the file cannot be read.
    """
    whole = read_file(path, ("explorer_url", "channels"))
    keys = ("name", "type", "severities", INSECURE_KEY, *_secret_keys(*ReceiverType))
    readers = whole.each("channels", keys)
    if not 0 < len(readers) <= MAX_CHANNELS:
        raise whole.error("channels", f"{len(readers)} channels; allowed: 1 to {MAX_CHANNELS}")
    channels: dict[str, Channel] = {}
    for reader in readers:
        channel = _channel(reader, path.parent, environ)
        if channel.name in channels:
            raise reader.error("name", f"{shown(channel.name)}: another channel has this name")
        channels[channel.name] = channel
    return Configuration(tuple(channels.values()), _explorer_url(whole, environ))


def _secret_keys(*kinds: ReceiverType) -> tuple[str, ...]:
    named = dict.fromkeys(name for kind in kinds for name in _SECRETS[kind])
    return tuple(f"{name}{source}" for name in named for source in SOURCES)


def _channel(reader: MappingReader, folder: Path, environ: Mapping[str, str]) -> Channel:
    name = reader.text("name")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name, re.ASCII):
        raise reader.error("name", f"{shown(name)}; allowed: a-z, 0-9 and - between them")
    kind = ReceiverType(reader.choice("type", tuple(ReceiverType)))
    allowed = _secret_keys(kind)
    for key in _secret_keys(*ReceiverType):
        if key in reader and key not in allowed:
            raise reader.error(
                key,
                f"{kind} has no such key; allowed: name, type, severities, {', '.join(allowed)}",
            )

    def secret(key: str) -> Secret | None:
        return read_secret(reader, key, folder, environ)

    url = secret("url")
    if url is None and kind is ReceiverType.PAGERDUTY:
        url = Secret(pagerduty.URL)
    if url is None:
        raise _missing_key_error(reader, "url")
    _check_url(reader, url)
    authorization = secret("authorization")
    signs = secret("routing_key") if kind is ReceiverType.PAGERDUTY else secret("signing_key")
    if signs is None and kind is ReceiverType.PAGERDUTY:
        raise _missing_key_error(reader, "routing_key")
    severities = reader.choices("severities", SEVERITIES)
    _check_exposure(reader, kind, url, authorization)
    return Channel(name, kind, severities, url, signs, authorization)


def _missing_key_error(reader: MappingReader, key: str) -> DocumentError:
    either = ", ".join(f"{key}{source}" for source in SOURCES)
    return reader.error(key, f"is missing; give one of {either}")


def _check_url(reader: MappingReader, url: Secret) -> None:
    """Reject an invalid address. The error does not contain the address, which may be a secret."""
    key = next((f"url{source}" for source in SOURCES if f"url{source}" in reader), "url")
    problem = _url_problem(url.reveal())
    if problem:
        raise reader.error(key, problem)


def _check_exposure(
    reader: MappingReader, kind: ReceiverType, url: Secret, authorization: Secret | None
) -> None:
    """Reject a credential that would be sent unencrypted to a different machine."""
    if reader.flag(INSECURE_KEY, False):
        return
    # Addresses from a variable or a file, and addresses of Slack channels, are secrets.
    referred = any(f"url{source}" in reader for source in SOURCES if source)
    confidential = (
        authorization is not None
        or kind in (ReceiverType.SLACK, ReceiverType.PAGERDUTY)
        or referred
        or urlsplit(url.reveal()).query
    )
    if confidential and exposes(url.reveal()):
        key = next(f"url{source}" for source in SOURCES if f"url{source}" in reader)
        raise reader.error(
            key,
            "is http to another machine, so the address, key or authorization can be read in"
            f" transit; use https, or allow it with {INSECURE_KEY}: true",
        )


def _url_problem(url: str) -> str | None:
    allowed = "allowed: http://host/… or https://host/…"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return f"is not an address; {allowed}"
    if parts.scheme not in ("http", "https") or not host or " " in url:
        return f"is not an address; {allowed}"
    if parts.username is not None or parts.password is not None:
        return "must not contain user and password: give them as authorization"
    if parts.fragment:
        return "must not contain a fragment (#…)"
    return None


def _explorer_url(whole: MappingReader, environ: Mapping[str, str]) -> str | None:
    if "explorer_url" in whole:
        url = whole.text("explorer_url")
        if problem := _explorer_url_problem(url):
            raise whole.error("explorer_url", f"{shown(url)}: {problem}")
        return url
    url = environ.get(EXPLORER_KEY, "")
    if url and (problem := _explorer_url_problem(url)):
        raise AlertsError(f"{EXPLORER_KEY}: {problem}")
    return url or None


def _explorer_url_problem(url: str) -> str | None:
    return _url_problem(url) or ("must not contain a query (?…)" if urlsplit(url).query else None)
