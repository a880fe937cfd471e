"""`/metrics`, `/healthz` and `/readyz` as an ASGI application."""

import asyncio
import gzip
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from exporters.format.exposition import Exposition
from exporters.format.negotiation import Format, takes_gzip, wanted


def metrics_app(
    exposition: Exposition,
    ready: Callable[[], bool],
    failing: Callable[[], tuple[Sequence[str], Sequence[str]]] = lambda: ((), ()),
    other_paths: Sequence[str] = (),
) -> Starlette:
    """The ASGI application with `/metrics`, `/healthz` and `/readyz`.

    Args:
        ready: returns whether telemetry is being received and stored.
        failing: returns the failing components with reasons. The first sequence contains the vital
            components: telemetry is lost while they fail. Only they make `/readyz` respond "not
            ready".
        other_paths: paths that a second application serves on the same port. The 404 response lists
            them.
    """
    scrapes = _SharedScrapes(exposition)

    async def metrics(request: Request) -> Response:
        format_ = wanted(", ".join(request.headers.getlist("accept")))
        packed = takes_gzip(request.headers.get("accept-encoding", ""))
        headers = {"Content-Type": str(format_), "Vary": "Accept, Accept-Encoding"}
        if packed:
            headers["Content-Encoding"] = "gzip"
        return Response(await scrapes.read(format_, packed), headers=headers)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        vital, degraded = failing()
        if vital:
            return PlainTextResponse(f"not ready; failing: {', '.join(vital)}\n", 503)
        if not ready():
            return PlainTextResponse("not receiving telemetry, or the store refuses it\n", 503)
        if degraded:
            return PlainTextResponse(f"ready; degraded: {', '.join(degraded)}\n")
        return PlainTextResponse("ready\n")

    routes = [
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]
    paths = ", ".join([*(route.path for route in routes), *other_paths])

    async def not_found(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse(f"Not found. The paths are {paths}\n", 404)

    return Starlette(routes=routes, exception_handlers={404: not_found})


class _SharedScrapes:
    """Computes at most one scrape at a time. Requests that arrive during a scrape share the next
    scrape."""

    def __init__(self, exposition: Exposition) -> None:
        self._exposition = exposition
        self._turn = asyncio.Lock()
        self._next: dict[tuple[Format, bool], asyncio.Task[bytes]] = {}

    async def read(self, format_: Format, packed: bool) -> bytes:
        """Return a scrape in this format, compressed by gzip if requested."""
        wish = (format_, packed)
        if wish not in self._next:
            self._next[wish] = asyncio.create_task(self._write(wish))
        # The scrape is shielded, so that it continues for other clients if one client disconnects.
        return await asyncio.shield(self._next[wish])

    async def _write(self, wish: tuple[Format, bool]) -> bytes:
        async with self._turn:
            del self._next[wish]  # later requests receive the next scrape
            # This runs on a thread, so that a long scrape does not delay telemetry.
            return await asyncio.to_thread(self._text, *wish)

    def _text(self, format_: Format, packed: bool) -> bytes:
        text = self._exposition.write(format_)
        return gzip.compress(text, 1) if packed else text
