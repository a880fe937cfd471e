"""Authenticate requests by bearer tokens.

A file or an environment variable lists the tokens. Tokens are compared in constant time and stored
as digests. No token appears in a log or an error. A token with a role (`TOKEN:ROLE`) can only read
what the role allows (`analysis.access.roles_file`). Source: RFC 6750.
"""

import hmac
import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from collector.errors import ForbiddenError, SecurityError, UnauthenticatedError

ENVIRONMENT_KEY: Final = "TAILSPAN_TOKENS"
FILE_ENVIRONMENT_KEY: Final = "TAILSPAN_TOKEN_FILE"
CHALLENGE: Final = 'Bearer realm="tailspan"'
SHORTEST: Final = 16

TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
HOLDER: Final = "tailspan.holder"
"""Key of the token's `Holder` in an ASGI scope."""


class Holder(NamedTuple):
    """The token of a request: its position in the file (from 1), and its role or None."""

    number: int
    role: str | None = None


class BearerTokens:
    """The valid tokens, at least one.

    Args:
        tokens: `TOKEN` or `TOKEN:ROLE`, each of at least `SHORTEST` characters.
        where: the name of the tokens' file or environment variable, for error messages.

    Raises:
        SecurityError: there are no tokens, or a token is malformed.
    """

    def __init__(self, tokens: Collection[str], where: str) -> None:
        if not tokens:
            raise SecurityError(f"{where} holds no token")
        pairs = [each.partition(":") for each in tokens]
        for number, (token, colon, role) in enumerate(pairs, 1):
            if colon and not role:
                raise SecurityError(
                    f"{where}: token {number} of {len(tokens)} has no role after the colon;"
                    " allowed: TOKEN, or TOKEN:ROLE"
                )
            if len(token) < SHORTEST or not TOKEN.fullmatch(token):
                raise SecurityError(
                    f"{where}: token {number} of {len(tokens)} is malformed; allowed: at least"
                    f" {SHORTEST} of A-Z a-z 0-9 - . _ ~ + /, such as `openssl rand -hex 32` prints"
                )
        self._digests = [_digest(token) for token, _, _ in pairs]
        if len(set(self._digests)) < len(self._digests):
            raise SecurityError(f"{where} holds the same token twice; allowed: each token once")
        self._roles = [role or None for _, _, role in pairs]

    @property
    def roles(self) -> frozenset[str]:
        """The roles of all tokens."""
        return frozenset(each for each in self._roles if each is not None)

    def holder(self, authorization: str | None) -> Holder:
        """Return the holder of the token in a request's Authorization header.

        Raises:
            UnauthenticatedError: the request has no token, or an invalid one.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError("a token is required: send Authorization: Bearer TOKEN")
        digest = _digest(token.strip())
        # Compare every token, because the duration must not reveal which token matches.
        found = [hmac.compare_digest(digest, good) for good in self._digests]
        if not sum(found):
            raise UnauthenticatedError("the token is not valid")
        place = found.index(True)
        return Holder(place + 1, self._roles[place])

    def check(self, authorization: str | None) -> None:
        """Check that a request may send telemetry.

        Raises:
            UnauthenticatedError: the request has no token, or an invalid one.
            ForbiddenError: the token has a role, and such tokens can only read.
        """
        role = self.holder(authorization).role
        if role is not None:
            raise ForbiddenError(
                f"the token has the role {role}, so it can only read; send telemetry with a token"
                " without a role"
            )


def read_tokens(file: Path | None, environ: Mapping[str, str]) -> tuple[list[str], str] | None:
    """Return the unchecked tokens and the name of their source. Return None if there is no source.

    Args:
        file: has one token per line; `#` begins a comment. If None, the file in
            `TAILSPAN_TOKEN_FILE` is read.
        environ: `TAILSPAN_TOKENS` has tokens separated by blanks or commas.

    Raises:
        SecurityError: the file cannot be read.
    """
    path = file or (Path(given) if (given := environ.get(FILE_ENVIRONMENT_KEY)) else None)
    if path is not None:
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise SecurityError(f"cannot read the tokens in {path}: {why}") from error
        found = [line.partition("#")[0].strip() for line in lines]
        return [token for token in found if token], str(path)
    if ENVIRONMENT_KEY in environ:
        return environ[ENVIRONMENT_KEY].replace(",", " ").split(), ENVIRONMENT_KEY
    return None


def token_without_role(tokens: Iterable[str]) -> str | None:
    """The first token without a role, or None if all have a role. A token without a role may send
    telemetry."""
    return next((each for each in tokens if ":" not in each), None)


def sending_token(file: Path | None, environ: Mapping[str, str]) -> str | None:
    """The first token that may send telemetry, or None if no tokens are configured.

    Raises:
        SecurityError: the file cannot be read, a token is malformed, or all tokens have a role.
    """
    given = read_tokens(file, environ)
    if given is None:
        return None
    tokens, where = given
    BearerTokens(tokens, where)
    found = token_without_role(tokens)
    if found is None:
        raise SecurityError(
            f"{where} holds only tokens with a role, and these can only read; add a token without"
            " a role"
        )
    return found


class BearerGate:
    """An ASGI application that requires a token on all paths except `open_paths`.

    Args:
        role_paths: prefix of the paths that tokens with a role may read, or None. The scope
            contains the role under the key `HOLDER`. The application must restrict its answers to
            what the role may see.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: BearerTokens,
        open_paths: Collection[str] = (),
        role_paths: str | None = None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._open_paths = frozenset(open_paths)
        self._role_paths = role_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the application, or answer 401 or 403."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            try:
                holder = self._tokens.holder(Headers(scope=scope).get("authorization"))
            except UnauthenticatedError as error:
                headers = {"WWW-Authenticate": CHALLENGE}
                await PlainTextResponse(f"{error}\n", 401, headers)(scope, receive, send)
                return
            paths = self._role_paths
            if holder.role is not None and not (paths and scope["path"].startswith(paths)):
                why = f"the token has the role {holder.role}, which can read {paths or 'no path'}"
                await PlainTextResponse(f"{why}\n", 403)(scope, receive, send)
                return
            scope = {**scope, HOLDER: holder}
        await self._app(scope, receive, send)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
