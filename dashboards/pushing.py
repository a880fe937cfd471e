"""Upload the folder, the data source and the dashboards to a Grafana.

Only changed objects are uploaded. Each object has a fixed uid, by which the next push finds it. A
push shows changes that were made in Grafana as a diff, and reverts them.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from grafana_client import GrafanaApi
from grafana_client.client import GrafanaException

from dashboards.grafana_json import build
from dashboards.panels import Board
from telemetry.addresses import masked

FOLDER_UID: Final = "tailspan"
FOLDER_TITLE: Final = "Tailspan"
SOURCE_UID: Final = "tailspan-prometheus"
TIMEOUT_S: Final = 15.0
MESSAGE: Final = "tailspan dashboards push"

Document = dict[str, Any]


class PushError(Exception):
    """An upload failed. The message names the fix."""


@dataclass(frozen=True, slots=True)
class PushChange:
    """What a push, or a dry run, did with one object."""

    what: str
    action: str
    """`create`, `update` or `unchanged`."""
    difference: tuple[str, ...] = ()
    """A unified diff between the existing object and the pushed one."""


def prometheus_source(url: str, scrape_s: float) -> Document:
    """Grafana's data source for the Prometheus at `url`, which scrapes every `scrape_s` seconds."""
    return {
        "uid": SOURCE_UID,
        "name": "Tailspan Prometheus",
        "type": "prometheus",
        "access": "proxy",
        "url": url,
        # Grafana computes $__rate_interval from this value.
        "jsonData": {"httpMethod": "POST", "timeInterval": f"{scrape_s:g}s"},
    }


def push(
    url: str,
    token: str,
    boards: Sequence[Board],
    source: Document | None = None,
    *,
    dry_run: bool = False,
) -> Iterator[PushChange]:
    """Create or update the objects in a Grafana, and yield each change.

    Args:
        url: the address of the Grafana, with its path.
        token: the token of a service account.
        source: the data source to push, or None.
        dry_run: only report the changes.

    Raises:
        PushError: Grafana rejects a change or cannot be reached, or `url` is not a Grafana.
    """
    api = _connect(url, token)
    url = masked(url)  # for messages, without a password
    folder: Document = {"uid": FOLDER_UID, "title": FOLDER_TITLE}
    yield _folder(api, url, folder, dry_run)
    if source is not None:
        yield _source(api, url, source, dry_run)
    for board in boards:
        yield _board(api, url, build(board), dry_run)


def check_address(url: str) -> None:
    """Check that a URL can be the address of a Grafana.

    Raises:
        PushError: the URL is malformed, or contains a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PushError(
            f"{masked(url)!r} is not a Grafana address; allowed: http://HOST:3000 or https://HOST"
        )
    if "@" in parts.netloc:
        raise PushError(
            f"{masked(url)} must not contain a user or password; use a service account's token"
        )


def _connect(url: str, token: str) -> Any:
    check_address(url)
    parts = urlsplit(url)
    # The library appends `api` to the address without a slash between them.
    path = parts.path.strip("/")
    base = f"{parts.scheme}://{parts.netloc}/{path}{'/' if path else ''}"
    api = GrafanaApi.from_url(base, credential=token, timeout=TIMEOUT_S)
    api.client.s.max_redirects = 0  # no other address may receive the token
    url = masked(url)
    with _refusals(url, "for its health"):
        health = api.health.check()
    if not isinstance(health, Mapping) or "database" not in health:
        raise PushError(f"{url} is not a Grafana: its /api/health is not Grafana's")
    return api


def _folder(api: Any, url: str, wanted: Document, dry_run: bool) -> PushChange:
    what = f"folder {wanted['title']}"
    there = _existing_object(url, f"the {what}", lambda: api.folder.get_folder(wanted["uid"]))
    if there is not None:
        return PushChange(what, "unchanged")
    if not dry_run:
        with _refusals(url, f"to create the {what}"):
            api.folder.create_folder(wanted["title"], uid=wanted["uid"])
    return PushChange(what, "create")


def _source(api: Any, url: str, wanted: Document, dry_run: bool) -> PushChange:
    what = f"data source {wanted['name']}"
    there = _existing_object(
        url, f"the {what}", lambda: api.datasource.get_datasource_by_uid(wanted["uid"])
    )
    if there is None:
        if not dry_run:
            with _refusals(url, f"to create the {what} (requires the role Admin)"):
                api.datasource.create_datasource(wanted)
        return PushChange(what, "create")
    # Grafana returns more fields than Tailspan sets.
    current = {key: there.get(key) for key in wanted}
    current["jsonData"] = {
        key: (there.get("jsonData") or {}).get(key) for key in wanted["jsonData"]
    }
    if current == wanted:
        return PushChange(what, "unchanged")
    if not dry_run:
        both = {
            **there,
            **wanted,
            "jsonData": {**(there.get("jsonData") or {}), **wanted["jsonData"]},
        }
        with _refusals(url, f"to change the {what} (requires the role Admin)"):
            api.datasource.update_datasource_by_uid(wanted["uid"], both)
    return PushChange(what, "update", _difference(current, wanted))


def _board(api: Any, url: str, wanted: Document, dry_run: bool) -> PushChange:
    what = f"dashboard {wanted['title']}"
    there = _existing_object(url, f"the {what}", lambda: api.dashboard.get_dashboard(wanted["uid"]))
    change, version = PushChange(what, "create"), None
    if there is not None:
        current = dict(there["dashboard"])
        current.pop("id", None)
        version = current.pop("version", None)
        in_folder = there.get("meta", {}).get("folderUid")
        difference = _difference(current, wanted)
        if in_folder != FOLDER_UID:
            difference = (f"-folder {in_folder or 'none'}", f"+folder {FOLDER_UID}", *difference)
        if not difference:
            return PushChange(what, "unchanged")
        change = PushChange(what, "update", difference)
    if not dry_run:
        document = {
            # Grafana rejects the update if its dashboard no longer has this version.
            "dashboard": {**wanted, **({} if version is None else {"version": version})},
            "folderUid": FOLDER_UID,
            "message": MESSAGE,
            "overwrite": False,
        }
        with _refusals(url, f"to keep the {what}"):
            api.dashboard.update_dashboard(document)
    return change


def _difference(before: Document, after: Document) -> tuple[str, ...]:
    old, new = (
        json.dumps(each, indent=1, sort_keys=True, ensure_ascii=False).splitlines()
        for each in (before, after)
    )
    return tuple(difflib.unified_diff(old, new, "in Grafana", "here", lineterm="", n=1))


def _existing_object(url: str, what: str, get: Callable[[], Document]) -> Document | None:
    try:
        with _refusals(url, f"to show {what}"):
            return get()
    except _AbsentError:
        return None


class _AbsentError(PushError):
    """The object does not exist."""


@contextmanager
def _refusals(url: str, request: str) -> Iterator[None]:
    """Convert each error of the client library to a PushError with one sentence."""
    try:
        yield
    except GrafanaException as error:
        raise _push_error(url, request, error) from error
    except requests.exceptions.TooManyRedirects as error:
        raise PushError(
            f"{url} redirects to another address, which is not followed: use that address"
        ) from error
    except requests.exceptions.JSONDecodeError as error:
        raise PushError(
            f"{url} is not a Grafana: unexpected response to the request {request}"
        ) from error
    except requests.exceptions.SSLError as error:
        raise PushError(f"{url}: its certificate is not trusted: {error}") from error
    except requests.exceptions.Timeout as error:
        raise PushError(f"{url} did not respond within {TIMEOUT_S:g} s") from error
    except requests.exceptions.RequestException as error:
        raise PushError(f"{url} cannot be reached: {_innermost(error)}") from error


def _innermost(error: BaseException) -> str:
    """The operating system's error message, without the messages of the libraries."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
        found = found.__cause__ or found.__context__
    return str(error)


def _push_error(url: str, request: str, error: GrafanaException) -> PushError:
    message = error.response.get("message", "") if isinstance(error.response, Mapping) else ""
    reason = f" ({message})" if message else ""
    match error.status_code:
        case 401:
            return PushError(
                f"{url} rejects the token{reason}: create a token for a service account"
                " (Administration → Users and access → Service accounts)"
            )
        case 403:
            return PushError(
                f"{url} forbids the token {request}{reason}: give its service account the role"
                " Editor, or Admin if --prometheus is used"
            )
        case 404:
            return _AbsentError(f"{url} has no such endpoint or object: {request}{reason}")
        case 409 | 412:
            return PushError(
                f"{url} refused {request}{reason}: the object was changed in the meantime, or"
                " another object has its name; check with --dry-run, and push again"
            )
        case status if status >= 500:
            return PushError(
                f"{url} failed with {status}{reason} when asked {request}; try again later"
            )
        case status:
            return PushError(f"{url} refused {request} with {status}{reason}")
