"""One look at a thing over HTTP: does it answer, and with what."""

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `status` is None where nothing did, and `text` says why."""

    status: int | None
    text: str

    @property
    def ok(self) -> bool:
        """Whether it answered that all is well."""
        return self.status is not None and 200 <= self.status < 300


def get(url: str, timeout_s: float = 2.0) -> Answer:
    """GET, with the first 100,000 characters of the answer. Never raises for what it meets.

    Raises: ValueError where `url` is no http or https address.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r}: must begin with http:// or https://")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as response:
            return Answer(response.status, response.read(100_000).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.reason if isinstance(error.reason, str) else "")
    except urllib.error.URLError as error:
        return Answer(None, str(error.reason))
    except (OSError, http.client.HTTPException) as error:
        return Answer(None, str(error) or type(error).__name__)
