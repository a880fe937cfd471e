"""Check whether a credential may be sent to an address, and mask credentials in addresses. Pure.

Source: RFC 6750, section 5.3 (TLS); RFC 3986, section 3.2.1 (userinfo).
"""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

INSECURE_OPTION: Final = "--insecure-credentials"
INSECURE_KEY: Final = "insecure_credentials"
"""The key for `INSECURE_OPTION` in a YAML file. For scrape targets, the label is
`__insecure_credentials__`."""
HIDDEN: Final = "***"
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Maps each wildcard address to the loopback address of the same family. A Python server that
listens on `::` accepts no IPv4 connections."""


def is_loopback(host: str | None) -> bool:
    """Whether a host is a loopback address or `localhost`."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


def exposes(url: str) -> bool:
    """Whether data sent to this address crosses the network unencrypted."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and not is_loopback(parts.hostname)
    except ValueError:  # not an address
        return False


def exposure(url: str, what: str, option: str = INSECURE_OPTION) -> str:
    """The error message for a credential that must not be sent to an address."""
    return f"{masked(url)}: {what} would be sent unencrypted; use https, or allow it with {option}"


def masked(url: str) -> str:
    """The address without user, password, query and fragment.

    In a malformed address, every part that may be secret is hidden.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    start = f"{scheme}{separator}"
    before, at, after = rest.rpartition("@")
    if at and any(mark in before for mark in "?#"):  # the @ may be in the query
        return f"{start}{HIDDEN}"
    place, *more = re.split(r"[?#]", after, maxsplit=1)
    return f"{start}{HIDDEN + at if at else ''}{place}{'?' + HIDDEN if more else ''}"


def authority(host: str, port: int) -> str:
    """The `HOST:PORT` that a client on this machine uses to reach a server."""
    host = _LOOPBACK.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
