"""Who may come in: bearer tokens, from a file or a variable, compared in constant time.

A token is kept as its digest, and is never shown, logged or told of in an error.
Source: RFC 6750, "The OAuth 2.0 Authorization Framework: Bearer Token Usage".
"""

import hmac
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from collector.errors import SecurityError, UnauthenticatedError

ENVIRONMENT_KEY: Final = "TAILSPAN_TOKENS"
FILE_ENVIRONMENT_KEY: Final = "TAILSPAN_TOKEN_FILE"
CHALLENGE: Final = 'Bearer realm="tailspan"'
SHORTEST: Final = 16

TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a token consists of."""


class Tokens:
    """The tokens that are good; never empty.

    Args:
        tokens: each of at least `SHORTEST` characters.
        where: what holds them, for errors.

    Raises:
        SecurityError: there are none, or one is no token.
    """

    def __init__(self, tokens: Collection[str], where: str) -> None:
        if not tokens:
            raise SecurityError(f"{where} holds no token")
        for number, token in enumerate(tokens, 1):
            if len(token) < SHORTEST or not TOKEN.fullmatch(token):
                raise SecurityError(
                    f"{where}: token {number} of {len(tokens)} is none; allowed: at least"
                    f" {SHORTEST} of A-Z a-z 0-9 - . _ ~ + /, as `openssl rand -hex 32` makes them"
                )
        self._digests = [_digest(token) for token in tokens]

    @classmethod
    def found(cls, file: Path | None, environ: Mapping[str, str]) -> Self | None:
        """Those of the file, or of the variables; None where neither is given.

        Args:
            file: one token a line; `#` begins a comment. None for `TAILSPAN_TOKEN_FILE`.
            environ: the environment; `TAILSPAN_TOKENS` holds tokens between blanks or commas.

        Raises:
            SecurityError: the file cannot be read, or what is there is no token.
        """
        given = read_tokens(file, environ)
        return None if given is None else cls(*given)

    def check(self, authorization: str | None) -> None:
        """Let in who shows a good token.

        Raises:
            UnauthenticatedError: there is none, or another.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError("a token is needed: send Authorization: Bearer TOKEN")
        digest = _digest(token.strip())
        # Each is compared, so that the time tells nothing of which, or of how much of it.
        if not sum(hmac.compare_digest(digest, good) for good in self._digests):
            raise UnauthenticatedError("the token is not one of those that are good here")


def read_tokens(file: Path | None, environ: Mapping[str, str]) -> tuple[list[str], str] | None:
    """The tokens as they stand there, and where that is; as `Tokens.found`, but not judged."""
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


class BearerGate:
    """An ASGI application behind the tokens, but for some paths.

    Args:
        app: what is behind.
        tokens: who may pass.
        open_paths: where anybody may: health, which an orchestrator asks for without a token.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens, open_paths: Collection[str] = ()) -> None:
        self._app = app
        self._tokens = tokens
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 401."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            try:
                self._tokens.check(Headers(scope=scope).get("authorization"))
            except UnauthenticatedError as error:
                headers = {"WWW-Authenticate": CHALLENGE}
                await PlainTextResponse(f"{error}\n", 401, headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
