"""`/metrics`, `/healthz` and `/readyz` as an ASGI application."""

from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def metrics_app(registry: CollectorRegistry, ready: Callable[[], bool]) -> Starlette:
    """The application that Prometheus scrapes and an orchestrator probes.

    Args:
        registry: what to tell.
        ready: whether telemetry is being received and kept.
    """

    # Not async: Starlette runs it on a thread, and a long text holds up no telemetry.
    def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

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
