"""Addresses that may hold or receive a credential: who could read it, and how they are shown.

Pure. One rule for every sender: a credential goes to loopback or over TLS, unless the user
sets `--insecure-credentials`.
Source: RFC 6750, section 5.3 (bearer tokens over TLS alone); RFC 3986, section 3.2.1 (userinfo).
"""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

INSECURE_OPTION: Final = "--insecure-credentials"
"""The option of every command that sends a credential."""
INSECURE_KEY: Final = "insecure_credentials"
"""The same in a YAML file; in a file of targets the label `__insecure_credentials__`."""
HIDDEN: Final = "***"
_ANY: Final = ("0.0.0.0", "::")


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, by an address that no other can reach."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:  # a name, which may be anywhere
        return False


def exposes(url: str) -> bool:
    """Whether others can read what is sent there: over http, and not to loopback."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and not is_loopback(parts.hostname)
    except ValueError:  # no address: whoever wants to send there refuses it
        return False


def exposure(url: str, what: str, way_out: str = INSECURE_OPTION) -> str:
    """Why a credential is not sent there, in a sentence.

    Args:
        url: where it would go; shown without what it may hold.
        what: names the credential.
        way_out: what the user sets to send it all the same.
    """
    return (
        f"{masked(url)}: others could read {what} on the way; use https, or allow it with {way_out}"
    )


def masked(url: str) -> str:
    """An address as it may be shown: without user and password, query and fragment.

    In a malformed address, what cannot be separated is hidden.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    start = f"{scheme}{separator}"
    before, at, after = rest.rpartition("@")
    if at and any(mark in before for mark in "?#"):  # a query, or a password that holds one
        return f"{start}{HIDDEN}"
    place, *more = re.split(r"[?#]", after, maxsplit=1)
    return f"{start}{HIDDEN + at if at else ''}{place}{'?' + HIDDEN if more else ''}"


def authority(host: str, port: int) -> str:
    """Return the `HOST:PORT` to connect to, given the address that a server listens on."""
    host = "127.0.0.1" if host in _ANY else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
