"""The explorer's entry where readers sign in: `streamlit run ui/sign_in_app.py`.

What Streamlit calls secrets is told to it here, in memory: no file of its own, no environment.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware
from streamlit.starlette import App

from ui.launch import ENTRY
from ui.sign_in_file import SignIn, in_force
from ui.sign_in_return import WayBack


def _secrets(asked: SignIn) -> dict[str, Any]:
    secret = asked.client_secret.reveal()
    # Of the client's secret, so that a restart signs nobody out and there is one less to keep.
    signs = hmac.digest(secret.encode(), b"tailspan explorer cookies", hashlib.sha256).hex()
    return {
        "redirect_uri": f"{asked.url}/oauth2callback",
        "cookie_secret": signs,
        "client_id": asked.client_id,
        "client_secret": secret,
        "server_metadata_url": asked.metadata_url,
    }


def _asked() -> SignIn:
    asked = in_force()
    if asked is None:
        raise RuntimeError("TAILSPAN_SIGN_IN names no file: start with tailspan ui --sign-in FILE")
    return asked


app = App(
    Path(__file__).with_name(ENTRY),
    secrets={"auth": _secrets(_asked())},
    middleware=[Middleware(WayBack, url=_asked().url)],
)
