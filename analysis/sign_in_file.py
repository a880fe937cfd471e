"""Read `sign-in.yaml`: the identity provider, and the people who may use the explorer.

Errors name the file, line and key, and never contain a secret.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from alerts.errors import shown
from alerts.secrets import SOURCES, Secret, read_secret
from alerts.strict_yaml import Items, MappingReader, YamlScalar
from alerts.yaml_files import read_file
from telemetry.addresses import is_loopback

SIGN_IN_KEY: Final = "TAILSPAN_SIGN_IN"
DISCOVERY: Final = "/.well-known/openid-configuration"
EVERYBODY: Final = "*"
LONGEST_SESSION_S: Final = 30 * 86_400
"""Maximum lifetime of Streamlit's cookie."""
DEFAULT_SESSION: Final = "12h"
_KEYS: Final = (
    *("issuer", "client_id", *(f"client_secret{source}" for source in SOURCES)),
    *("url", "allow", "session", "unverified_email"),
)
_ADDRESS: Final = re.compile(r"[!-?A-~]*@[a-z0-9-]+(\.[a-z0-9-]+)*", re.ASCII)
"""An e-mail address or `@domain`, in lower case. The part before the last @ may be empty."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """The sign-in configuration."""

    issuer: str
    """URL of the identity provider, without a final slash."""
    client_id: str
    client_secret: Secret
    url: str
    """Public URL of the explorer, without a final slash."""
    allow: tuple[str, ...]
    """People who may use the explorer: `jane@example.org`, `@example.org`, or `*` for all accounts
    of the provider."""
    session_s: int
    trusts_unverified: bool = False
    """Whether to accept e-mail addresses that the provider has not verified."""

    @property
    def metadata_url(self) -> str:
        """The provider's OpenID configuration."""
        return f"{self.issuer}{DISCOVERY}"

    @property
    def base_path(self) -> str:
        """URL path of the explorer, without slashes at the start and the end."""
        return urlsplit(self.url).path.strip("/")

    @property
    def host(self) -> str:
        """Host name of the explorer."""
        return urlsplit(self.url).hostname or ""

    @property
    def provider(self) -> str:
        """Host name of the identity provider."""
        return urlsplit(self.issuer).hostname or ""


def load_sign_in(path: Path, environ: Mapping[str, str]) -> SignIn:
    """Read a sign-in file.

    Args:
        path: the sign-in file. Relative paths in it start at its folder.
        environ: the environment variables, for `client_secret_env`.

    Raises:
        DocumentError: the file is invalid, or names a file or variable that does not exist.
        OSError: the file cannot be read.
    """
    whole = read_file(path, _KEYS)
    secret = read_secret(whole, "client_secret", path.parent, environ)
    if secret is None:
        either = ", ".join(f"client_secret{source}" for source in SOURCES)
        raise whole.error("client_secret", f"is missing; give one of {either}")
    return SignIn(
        issuer=_address(whole, "issuer").removesuffix(DISCOVERY),
        client_id=whole.text("client_id"),
        client_secret=secret,
        url=_address(whole, "url"),
        allow=_allow(whole),
        session_s=_session(whole),
        trusts_unverified=(
            "unverified_email" in whole
            and whole.choice("unverified_email", ("refuse", "trust")) == "trust"
        ),
    )


@cache
def in_force() -> SignIn | None:
    """Return the sign-in configuration of this process, or None if sign-in is not used.

    Raises the errors of `load_sign_in`. So if the file is invalid, the explorer shows no page.
    """
    path = os.environ.get(SIGN_IN_KEY)
    return load_sign_in(Path(path), os.environ) if path else None


def _address(whole: MappingReader, key: str) -> str:
    """A base URL.

    Plain HTTP is allowed on loopback only, because requests contain the session cookie."""
    text = whole.text(key).rstrip("/")
    allowed = "allowed: https://host/…, or http://localhost/… for a test"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise whole.error(key, f"{shown(text)} is no address; {allowed}") from None
    if "@" in parts.netloc:
        raise whole.error(key, "must not contain a user or password")
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not (secure and host) or parts.query or parts.fragment:
        raise whole.error(key, f"{shown(text)}; {allowed}")
    return text


def _allow(whole: MappingReader) -> tuple[str, ...]:
    node = whole.node("allow")
    each = [item for item in getattr(node, "items", ()) if isinstance(item, YamlScalar)]
    allowed = "jane@example.org, '@example.org', or '*' for all accounts of the issuer"
    if not isinstance(node, Items) or not each or len(each) != len(node.items):
        raise whole.error("allow", f"must be a sequence of: {allowed}")
    names = tuple(item.text.lower() for item in each)
    for name in names:
        if name != EVERYBODY and not _ADDRESS.fullmatch(name):
            raise whole.error("allow", f"{shown(name)}; allowed: {allowed}")
    return names


def _session(whole: MappingReader) -> int:
    session_s = whole.duration_s("session", DEFAULT_SESSION)
    if session_s > LONGEST_SESSION_S:
        raise whole.error("session", f"{whole.text('session')}; allowed: at most 30d")
    return session_s
