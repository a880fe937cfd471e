"""Streamlit's HTML document, with three additions.

- The explorer's style and scripts. If the page added the style later, drawn elements would move.
- Links that preload modules that every page uses. Elements then have the right height at once.
- The server's address. Without it, `/PAGE` first requests `/PAGE/_stcore/health`, and gets 404.
"""

import json
from pathlib import Path
from typing import Final

import streamlit
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FRAME: Final = Path(__file__).parent.parent / "frame"
SCRIPTS: Final = ("history.js", "picture_button.js", "copy_link.js", "connection.js")
PARTS: Final = ("Html", "PageLink", "ButtonGroup", "Button", "Selectbox", "BidiComponent")
"""The modules to preload. A name that this version of Streamlit lacks is ignored."""
_MODULES: Final = Path(streamlit.__file__).parent / "static" / "static" / "js"
_ADDRESS: Final = (
    "<script>window.__streamlit = {BACKEND_BASE_URL: new URL(%s, location.origin).href};</script>"
)


class Shell:
    """Adds the style, the scripts and the server's address to Streamlit's document.

    `base` is empty, or has a leading slash.
    """

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app = app
        address = _ADDRESS % json.dumps(f"{base}/")
        parts = [file.name for each in PARTS for file in _MODULES.glob(f"{each}.*.js")]
        preloads = "".join(
            f'<link rel="modulepreload" crossorigin href="./static/js/{each}">' for each in parts
        )
        style = (FRAME / "style.css").read_text()
        scripts = "".join((FRAME / each).read_text() for each in SCRIPTS)
        self._changes = (
            (b"<head>", f"<head>{address}".encode()),
            (b"</head>", f"{preloads}</head>".encode()),
            # Insert the explorer's style after Streamlit's styles. Between rules of the same
            # specificity, the later rule applies.
            (b"</body>", f"<style>{style}</style><script>{scripts}</script></body>".encode()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to Streamlit, and change the document in the response."""
        # These headers would allow a compressed response, or the status 304 (Not Modified). The
        # document could then not be changed.
        left_out = (b"accept-encoding", b"if-none-match", b"if-modified-since")
        headers = [each for each in scope["headers"] if each[0] not in left_out]
        start: Message = {}
        body = b""

        async def changed(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            kind = Headers(raw=start["headers"]).get("content-type", "")
            if kind.startswith("text/html") and scope["method"] == "GET":
                for before, after in self._changes:
                    body = body.replace(before, after, 1)
                headers = MutableHeaders(raw=[*start["headers"]])
                headers["content-length"] = str(len(body))
                del headers["etag"], headers["last-modified"]
                start = {**start, "headers": headers.raw}
            await send(start)
            await send({"type": "http.response.body", "body": body})

        await self._app({**scope, "headers": headers}, receive, changed)
