"""The credentials for a scrape target: a bearer token and the certificates for TLS.

A token is read from its file for each scrape and is never logged. Certificates are read again when
their files change. A token is sent only to loopback or over TLS, unless the user allows unencrypted
connections. A target file can name token and certificate files, which must lie in one folder.
Without this rule, a person who can edit the target file could make Tailspan send any readable file.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self

from collector.errors import SecurityError
from collector.listen.bearer_tokens import TOKEN
from telemetry.addresses import INSECURE_KEY, exposes, exposure

TOKEN_FILE_LABEL: Final = "__token_file__"
_LABELS: Final = {
    TOKEN_FILE_LABEL: "token_file",
    "__tls_ca_file__": "ca_file",
    "__tls_cert_file__": "cert_file",
    "__tls_key_file__": "key_file",
    "__tls_server_name__": "server_name",
}
INSECURE_LABEL: Final = f"__{INSECURE_KEY}__"
LABELS: Final = (*_LABELS, INSECURE_LABEL)
_LONGEST_TOKEN: Final = 16_384


@dataclass(frozen=True, slots=True)
class TargetCredentials:
    """Credentials for a target. By default, there is no token, and the system's certificate
    authorities are used.

    Attributes:
        token_file: a file that contains the token. It is used instead of `token`.
        ca_file: the authority that signed the target's certificate, in PEM.
        cert_file: Tailspan's certificate for mutual TLS, with `key_file`.
        server_name: the name in the target's certificate, if it differs from the address.
        within: the folder that must contain the token's file, or None. Symbolic links are resolved
            before this is checked.
        insecure: whether the token may be sent unencrypted.
    """

    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    within: Path | None = field(default=None, compare=False)
    insecure: bool = field(default=False, compare=False)

    @classmethod
    def of_labels(
        cls, labels: Mapping[str, Any], folder: Path, within: Path | None = None, *, insecure: bool
    ) -> Self:
        """The credentials in the labels of a target file.

        Args:
            folder: the folder of the target file. Paths are relative to it.
            within: the folder that must contain the files. If None, it is `folder`.

        Raises:
            SecurityError: a label is not a text, a file lies outside the folder, or `check` fails.
        """
        within = (within or folder).resolve()
        given: dict[str, Any] = {}
        for label, name in _LABELS.items():
            value = labels.get(label)
            if value is None:
                continue
            if not isinstance(value, str) or not value:
                raise SecurityError(f"{label}: must be a text")
            given[name] = folder / value if name.endswith("_file") else value
            if name.endswith("_file"):
                _check_within(given[name], within, label)
        match labels.get(INSECURE_LABEL):
            case None | "false":
                pass
            case "true":
                insecure = True
            case other:
                raise SecurityError(f'{INSECURE_LABEL}: {other!r:.40}; allowed: "true", "false"')
        access = cls(**given, within=within, insecure=insecure)
        access.check()
        return access

    @property
    def has_token(self) -> bool:
        """Whether a token is sent with requests."""
        return self.token is not None or self.token_file is not None

    def check(self) -> None:
        """Check that all files are usable.

        Raises:
            SecurityError: a file is not usable. The error names the file.
        """
        if (self.cert_file is None) != (self.key_file is None):
            raise SecurityError("a client certificate and its key: set both, or neither")
        self.headers()
        self.context()

    def headers(self) -> dict[str, str]:
        """The headers for a request. This method reads the token file.

        Raises:
            SecurityError: the file cannot be read, or contains no token.
        """
        if not self.has_token:
            return {}
        token, where = self.token, "the environment"
        if self.token_file is not None:
            if self.within is not None:  # a symbolic link may have changed
                _check_within(self.token_file, self.within, TOKEN_FILE_LABEL)
            token, where = _read(self.token_file), str(self.token_file)
        if token is None or not TOKEN.fullmatch(token):
            raise SecurityError(f"{where} contains no token: one line of A-Z a-z 0-9 - . _ ~ + /")
        return {"Authorization": f"Bearer {token}"}

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, or None if the default context is to be used. If a file has changed,
        this method loads it again into the same context.

        Raises:
            SecurityError: a file cannot be read, or is not PEM.
        """
        if self.ca_file is None and self.cert_file is None:
            return None
        if self.within is not None:  # a symbolic link may have changed
            for path in (self.ca_file, self.cert_file, self.key_file):
                if path is not None:
                    _check_within(path, self.within, "TLS")
        return _tls_files(self.ca_file, self.cert_file, self.key_file).context()

    def may_go(self, scheme: str, host: str) -> None:
        """Check that a token may be sent to this address. It may be sent to loopback or over TLS.
        The user can allow all addresses.

        Raises:
            ValueError: the token would be sent unencrypted.
        """
        url = f"{scheme}://[{host}]" if ":" in host else f"{scheme}://{host}"
        if self.has_token and not self.insecure and exposes(url):
            raise ValueError(exposure(url, "the token"))


OPEN: Final = TargetCredentials()


def _check_within(path: Path, folder: Path, label: str) -> None:
    if not path.resolve().is_relative_to(folder):
        raise SecurityError(
            f"{label}: {path} lies outside of {folder}; move it there, or name its folder with"
            " --scrape-secrets"
        )


def _read(path: Path) -> str:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(_LONGEST_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise SecurityError(f"cannot read the token in {path}: {why}") from error


@lru_cache(maxsize=256)
def _tls_files(ca: Path | None, cert: Path | None, key: Path | None) -> "_TlsFiles":
    return _TlsFiles(ca, cert, key)


@dataclass(slots=True)
class _TlsFiles:
    """The files of a TLS context. New connections use the current content of the files, but an
    authority that was removed from a file stays trusted until Tailspan is restarted."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    _context: ssl.SSLContext | None = None
    _versions: tuple[tuple[int, int] | None, ...] = ()

    def context(self) -> ssl.SSLContext:
        versions = tuple(map(_version, (self.ca, self.cert, self.key)))
        if self._context is None or versions != self._versions:
            self._context = self._loaded()
            self._versions = versions
        return self._context

    def _loaded(self) -> ssl.SSLContext:
        context = self._context
        try:
            if context is None:
                context = ssl.create_default_context(cafile=self.ca)
            elif self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as error:  # or its subclass ssl.SSLError
            why = getattr(error, "reason", None) or error.strerror
            raise SecurityError(f"{self.ca} contains no certificate in PEM: {why}") from error
        if self.cert is not None and self.key is not None:
            try:
                # With a password, an encrypted key causes an error instead of a prompt on the
                # terminal.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
                raise SecurityError(
                    f"the certificate {self.cert} with the key {self.key}: {reason or error}; they"
                    " must be a pair in PEM, the key without a password"
                ) from error
        return context


def _version(path: Path | None) -> tuple[int, int] | None:
    """A value that changes with a file's content, or None if there is no file."""
    try:
        found = None if path is None else path.stat()
    except OSError:  # loading the file reports the reason
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino)
