"""`/metrics`, `/healthz` and `/readyz` as an ASGI application."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from exporters.exposition import Exposition
from exporters.negotiation import wanted


def metrics_app(exposition: Exposition, ready: Callable[[], bool]) -> Starlette:
    """The application that Prometheus scrapes and an orchestrator probes.

    Args:
        exposition: what to tell.
        ready: whether telemetry is being received and kept.
    """

    # Not async: Starlette runs it on a thread, and a long text holds up no telemetry.
    def metrics(request: Request) -> Response:
        format_ = wanted(", ".join(request.headers.getlist("accept")))
        return Response(exposition.write(format_), headers={"Content-Type": str(format_)})

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        if ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not receiving telemetry, or the store refuses it\n", 503)

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=1024, compresslevel=1)],
    )
