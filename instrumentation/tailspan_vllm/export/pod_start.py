"""Reads from the Kubernetes API how long each stage of a pod's start took, before the server's
first process began.

The plugin asks once per start, and only with `TAILSPAN_KUBERNETES=true`. A separate thread sends
two GET requests, for this pod and for its events. They contain the token of the pod's service
account. Exports never wait for this thread. If the API refuses a request or is late, the plugin
logs one line, and these parts stay unknown.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from tailspan_vllm import guard
from tailspan_vllm.settings import Settings
from tailspan_vllm.start_up.pod_times import parts_before
from tailspan_vllm.start_up.process import descends_from_process_1, first_process

logger = logging.getLogger("vllm.tailspan")

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which Kubernetes mounts the token, the API's certificate and the namespace."""

MAX_WAIT_S: Final = 10.0
"""The maximum time that the report of a start waits for the API."""
TIMEOUT_S: Final = 3.0
"""Time-out to connect, and time-out without data while an answer arrives."""
MAX_BYTES: Final = 4 * 1024 * 1024
"""A pod has at most 1.5 MiB, the default limit of etcd."""
MAX_EVENTS: Final = 500
_RIGHTS: Final = "the service account needs `get pods` and `list events` in its namespace"


class _UnknownError(Exception):
    """The parts are unknown. The message is the reason."""


class PodStart:
    """Parts of the start before the first process. Use it only on one thread.

    Args:
        environ: contains the address of the API, the pod's names, and the first process's start.
        account: the folder of the service account.
    """

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], account: Path = ACCOUNT
    ) -> None:
        self._environ = environ
        self._account = account
        self._until: float | None = None
        self._parts: dict[str, float] | None = None if settings.kubernetes else {}

    def parts(self) -> dict[str, float] | None:
        """Maps attribute names to seconds, or None until the API has answered. The result is empty
        if the parts are unknown."""
        if self._parts is None and self._until is None:
            self._until = time.monotonic() + MAX_WAIT_S
            threading.Thread(target=self._ask, name="tailspan-kubernetes", daemon=True).start()
        if self._parts is None and self._until is not None and time.monotonic() > self._until:
            self._log(f"no answer within {MAX_WAIT_S:.0f} s")
            self._parts = {}
        return self._parts

    def _ask(self) -> None:
        found: dict[str, float] = {}
        try:
            found = self._find_parts()
        except _UnknownError as reason:
            self._log(str(reason))
        except Exception as error:
            guard.note_failure("pod_start")
            self._log(type(error).__name__)
        if self._parts is None:
            self._parts = found

    def _find_parts(self) -> dict[str, float]:
        first = first_process(self._environ)
        if first is None or not descends_from_process_1():
            raise _UnknownError("the server's first process was not started with its container")
        labels = _labels(self._environ)
        space = labels.get("k8s.namespace.name") or self._read("namespace")
        name = labels.get("k8s.pod.name") or socket.gethostname()
        base = f"/api/v1/namespaces/{quote(space, safe='')}"
        pod = self._get(f"{base}/pods/{quote(name, safe='')}")
        uid = str((pod.get("metadata") or {}).get("uid"))
        events = None
        try:
            selected = quote(f"involvedObject.uid={uid}", safe="")
            events = self._get(f"{base}/events?fieldSelector={selected}&limit={MAX_EVENTS}")
        except _UnknownError as reason:
            self._log(f"{reason}; the pull of images counts as the container's start")
        return parts_before(pod, events, labels.get("k8s.container.name"), first.began_unix_ns)

    def _get(self, path: str) -> dict[str, Any]:
        import requests
        from urllib3.exceptions import HTTPError

        host = self._environ.get("KUBERNETES_SERVICE_HOST", "")
        port = self._environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise _UnknownError("KUBERNETES_SERVICE_HOST is not set; is this a pod?")
        address = f"[{host}]" if ":" in host else host
        session = requests.Session()
        session.trust_env = False  # a proxy or a .netrc must not receive the token
        try:
            with session.get(
                f"https://{address}:{port}{path}",
                headers={"authorization": f"Bearer {self._read('token')}"},
                verify=str(self._account / "ca.crt"),
                timeout=TIMEOUT_S,
                allow_redirects=False,
                stream=True,
            ) as answer:
                if answer.status_code != 200:
                    right = f" ({_RIGHTS})" if answer.status_code in (401, 403, 404) else ""
                    raise _UnknownError(f"HTTP {answer.status_code} for {path[:200]}{right}")
                text = answer.raw.read(MAX_BYTES + 1, decode_content=True)
        except (OSError, HTTPError) as error:  # exceptions of the `requests` package are OSErrors
            raise _UnknownError(f"{type(error).__name__} for {path[:200]}") from error
        if len(text) > MAX_BYTES:
            raise _UnknownError(f"an answer of more than {MAX_BYTES} bytes for {path[:200]}")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _UnknownError(f"an answer that is not JSON for {path[:200]}") from error
        if not isinstance(found, dict):
            raise _UnknownError(f"an answer that is not an object for {path[:200]}")
        return found

    def _read(self, name: str) -> str:
        try:
            return (self._account / name).read_text().strip()
        except (OSError, ValueError) as error:
            raise _UnknownError(f"{self._account / name}: {type(error).__name__}") from error

    def _log(self, reason: str) -> None:
        logger.warning(
            "tailspan: parts of the pod's start before the server's first process are unknown: %s",
            reason,
        )


def _labels(environ: Mapping[str, str]) -> dict[str, str]:
    given = environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    pairs = (each.partition("=") for each in given.split(","))
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if value.strip()}
