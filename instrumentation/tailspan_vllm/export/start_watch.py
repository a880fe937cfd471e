"""Reports a failed start: the server's first process ends before the server is ready.

Nothing is sent if the first process itself is killed (SIGKILL).
"""

import atexit
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from tailspan_vllm import guard
from tailspan_vllm.engine_core.link import TOKEN_VARIABLE
from tailspan_vllm.export.transport import post_to
from tailspan_vllm.otlp.encoder import encode_span, export_of
from tailspan_vllm.otlp.request_span import SCOPE
from tailspan_vllm.otlp.start_span import failed_start_span
from tailspan_vllm.settings import resource_attributes, settings_from
from tailspan_vllm.start_up.failed_start import failed_starts
from tailspan_vllm.start_up.process import first_process
from tailspan_vllm.start_up.progress import ProgressReports

MAX_WAIT_S: Final = 2.0
"""A failed server waits at most this long for the collector."""


class StartWatch:
    """Watches the start of a server, in its first process.

    Args:
        environ: contains the link's token and the start time of the first process.
        port: the server's port, or None without an HTTP server.
    """

    def __init__(self, environ: Mapping[str, str], port: int | None = None) -> None:
        self._environ = dict(environ)
        self._port = port
        self._process = os.getpid()
        self._reports: ProgressReports | None = ProgressReports(environ[TOKEN_VARIABLE])

    def begin(self) -> None:
        """Make this process report a failed start when it ends."""
        atexit.register(self.end)

    @guard.catch_exceptions("failed_start")
    def end(self) -> None:
        """Send the starts that failed. Waits at most `MAX_WAIT_S`."""
        reports, self._reports = self._reports, None
        first = first_process(self._environ)
        if reports is None or first is None or os.getpid() != self._process:
            return  # for example in a fork of the first process
        spans = [
            encode_span(span)
            for each in failed_starts(first, reports.read(), time.monotonic())
            if (span := failed_start_span(each, first, self._environ)) is not None
        ]
        if not spans:
            return
        where = settings_from(self._environ).destinations["traces"]
        where = replace(where, timeout_s=min(where.timeout_s, MAX_WAIT_S))
        # Resource.create() would start threads, which fails while a program ends.
        named = Resource(resource_attributes(self._environ, self._port))
        post_to(where)(export_of(OTELResourceDetector().detect().merge(named), SCOPE, spans))
