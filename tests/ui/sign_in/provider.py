"""A fake OpenID Connect provider on loopback, which signs in any user.

The provider implements discovery, the code flow with PKCE, signed tokens and end of session.
"""

import base64
import hashlib
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from rig.ports import free_port

CLIENT, CLIENT_SECRET = "tailspan", "a-secret-of-the-client-0123456789"


class Provider:
    """A provider with scripted responses, and the requests that it received."""

    def __init__(self) -> None:
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.who: dict[str, Any] = {"email": "jane@example.org", "email_verified": True}
        """The claims of the next user."""
        self.refuses = False
        """Whether the user refuses the sign-in."""
        self.age_s = 0
        """The age of the next token, in seconds."""
        self.codes: dict[str, dict[str, str]] = {}
        """The authorisation requests, by their codes."""
        self._key = RSAKey.generate_key(2048, {"kid": "one"})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._configuration),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/jwks", self._keys),
                Route("/logout", self._logout),
            ]
        )

    async def _configuration(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "end_session_endpoint": f"{self.issuer}/logout",
                "code_challenge_methods_supported": ["S256"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        back, state = asked["redirect_uri"], asked["state"]
        if self.refuses:
            return RedirectResponse(f"{back}?{urlencode({'error': 'no', 'state': state})}")
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return RedirectResponse(f"{back}?{urlencode({'code': code, 'state': state})}")

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        asked = self.codes[form["code"]]
        expected = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        proof = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(proof).decode().rstrip("=")
        if (
            request.headers.get("authorization") != f"Basic {expected}"
            or form["redirect_uri"] != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        given_s = int(time.time()) - self.age_s
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "1",
            "iat": given_s,
            "exp": int(time.time()) + 300,
            "nonce": asked["nonce"],
            **self.who,
        }
        signed = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self._key)
        return JSONResponse({"access_token": "access", "token_type": "Bearer", "id_token": signed})

    async def _keys(self, _: Request) -> Response:
        return JSONResponse({"keys": [self._key.as_dict(private=False)]})

    async def _logout(self, request: Request) -> Response:
        return RedirectResponse(request.query_params["post_logout_redirect_uri"])


@contextmanager
def running() -> Iterator[Provider]:
    provider = Provider()
    server = uvicorn.Server(uvicorn.Config(provider.app(), port=provider.port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    yield provider
    server.should_exit = True
    thread.join(20)
