"""Describe an HTTP error status in one sentence."""

import json
from typing import Final

from probe.answer import first_of, mapping_of, text_of
from probe.errors import ProbeFailure
from probe.http_exchange import Response

_MEANING: Final = {
    400: "refused the request",
    401: "refused the key",
    403: "refused the key",
    404: "has no such path or model",
    408: "waited too long for the request",
    413: "refused the prompt as too long",
    429: "limits the rate",
    503: "is overloaded",
    529: "is overloaded",
}


def refused(response: Response) -> ProbeFailure:
    """The failure for a response whose status is not a success."""
    status = response.status
    if status < 400:
        meaning = "redirects elsewhere, which a probe does not follow"
    else:
        meaning = _MEANING.get(status) or ("failed" if status >= 500 else "refused the request")
    wait_s = response.retry_after_s
    asks = "" if wait_s is None else f", and asks to wait {wait_s:.3g} s"
    message = _message(response.refusal)
    reason = f": {message}" if message else ""
    return ProbeFailure(str(status), f"HTTP {status}: the endpoint {meaning}{asks}{reason}")


def _message(body: bytes) -> str | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    about = first_of(parsed) if isinstance(parsed, list) else mapping_of(parsed)
    error = about.get("error")
    return (
        text_of(mapping_of(error).get("message"))
        or text_of(error)
        or text_of(about.get("message"))
        or text_of(about.get("Message"))
        or text_of(about.get("detail"))
    )
