"""`/metrics`, `/healthz` and `/readyz` as an ASGI application."""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from exporters.exposition import Exposition
from exporters.negotiation import wanted


def metrics_app(
    exposition: Exposition,
    ready: Callable[[], bool],
    failing: Callable[[], tuple[Sequence[str], Sequence[str]]] = lambda: ((), ()),
) -> Starlette:
    """The application that Prometheus scrapes and an orchestrator probes.

    Args:
        exposition: what to tell.
        ready: whether telemetry is being received and kept.
        failing: the parts that fail, with why: those without which telemetry is lost, and the
            rest. With one of the first it is not ready; with one of the rest it is, and says so,
            for senders would lose more elsewhere.
    """

    # Not async: Starlette runs it on a thread, and a long text holds up no telemetry.
    def metrics(request: Request) -> Response:
        format_ = wanted(", ".join(request.headers.getlist("accept")))
        return Response(exposition.write(format_), headers={"Content-Type": str(format_)})

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

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)],
    )
