"""Streamlit's HTML document, with three additions.

- The explorer's style and scripts. Among the page's elements, a style would move drawn ones.
- Links that preload modules that every page uses, for elements with the right height.
- The server's address. Without it, `/PAGE` first requests `/PAGE/_stcore/health`, a 404.
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
"""Names that this version of Streamlit lacks are ignored."""
_MODULES: Final = Path(streamlit.__file__).parent / "static" / "static" / "js"
_ADDRESS: Final = (
    "<script>window.__streamlit = {BACKEND_BASE_URL: new URL(%s, location.origin).href};</script>"
)


class Shell:
    """Adds the style and the server's address to Streamlit's document.

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
            # After Streamlit's own styles: the later rule of the same specificity applies.
            (b"</body>", f"<style>{style}</style><script>{scripts}</script></body>".encode()),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to Streamlit, and change the document in the response."""
        # The response must contain the document: neither compressed nor 304 (Not Modified).
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
