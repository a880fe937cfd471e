"""Find and download vLLM's published sources with pip's client, without building them.

`pip download` would run the build code of a source archive. This module uses only pip's classes for
the index and for HTTP sessions. pip's settings for proxies, certificates and credentials apply.
"""

import hashlib
import json
import logging
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = "vllm"
KEPT = (
    "vllm/config",
    "vllm/distributed/kv_transfer/kv_connector/v1",
    "vllm/engine",
    "vllm/entrypoints",
    "vllm/envs.py",
    "vllm/executor",
    "vllm/platforms",
    "vllm/plugins",
    "vllm/tracing",
    "vllm/tracing.py",
    "vllm/utils",
    "vllm/v1",
)
"""The folders to store. Some of them are not needed yet. They are stored so that new requirements
rarely need a new download."""
FILE_LIMIT_BYTES = 4_000_000
"""Larger files are not read. vLLM's largest module has less than a tenth of this size."""
MANIFEST = "sources.json"

Progress = Callable[[str], None]


class NoSourceError(Exception):
    """The source of a version is not available."""


@dataclass(frozen=True, slots=True)
class Release:
    """A published release: its source archive, or a wheel if no source was published."""

    version: str
    url: str
    is_wheel: bool
    digest_name: str
    digest: str

    @property
    def minor(self) -> tuple[int, int]:
        """The first two numbers of the version."""
        return minor_of(self.version)


def minor_of(version: str) -> tuple[int, int]:
    """The minor version, such as (0, 12) for "0.12" or "0.12.0.post1"."""
    try:
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise ValueError(
            f"version: {version!r}; allowed: a version that begins with two numbers, such as 0.12"
        ) from None


class Index:
    """The package index that pip is configured to use."""

    def __init__(self, session: Any, finder: Any) -> None:
        self._session = session
        self._finder = finder

    def releases(self) -> list[Release]:
        """The newest release of each minor version, in ascending order.

        Yanked releases and pre-releases are omitted.

        Raises:
            NoSourceError: the index lists no release.
        """
        newest: dict[tuple[int, int], Any] = {}
        for candidate in self._finder.find_all_candidates(PROJECT):
            version, link = candidate.version, candidate.link
            if version.is_prerelease or link.is_yanked:
                continue
            if not link.filename.endswith((".tar.gz", ".whl")):
                continue
            minor = (version.major, version.minor)
            known = newest.get(minor)
            if known is None or _preference(known) < _preference(candidate):
                newest[minor] = candidate
        if not newest:
            raise NoSourceError(
                f"pip's index lists no release of {PROJECT}: check that the index is reachable"
            )
        return [
            Release(
                version=str(candidate.version),
                url=candidate.link.url_without_fragment,
                is_wheel=candidate.link.is_wheel,
                digest_name=candidate.link.hash_name or "",
                digest=candidate.link.hash or "",
            )
            for _, candidate in sorted(newest.items())
        ]

    def download(self, release: Release, to: Path) -> None:
        """Write the release's archive to a file, and check its digest.

        Raises:
            NoSourceError: the index does not return the archive, or its digest differs.
        """
        if release.digest_name not in ("sha256", "sha384", "sha512"):
            raise NoSourceError(f"vLLM {release.version}: the index has no digest of the archive.")
        digest = hashlib.new(release.digest_name)
        # These are pip's headers. With other headers, the HTTP layer could unpack the archive
        # before its digest is computed.
        answer = self._session.get(
            release.url, headers={"Accept-Encoding": "identity"}, stream=True
        )
        if answer.status_code != 200:
            raise NoSourceError(
                f"vLLM {release.version}: the index answered {answer.status_code} to the"
                " request for its source."
            )
        with to.open("wb") as file:
            for block in answer.iter_content(1 << 20):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != release.digest:
            raise NoSourceError(
                f"vLLM {release.version}: the archive's {release.digest_name} is "
                f"{digest.hexdigest()}; the index gives {release.digest}."
            )

    def read_wheel(self, release: Release, folder: Path) -> int:
        """Store the required files of a wheel, and return their number.

        Only the byte ranges of these files are downloaded. They are about a thousandth of a wheel's
        500 MB. The digest of the whole wheel cannot be checked, but `zipfile` checks each file's
        checksum.

        Raises:
            NoSourceError: this pip or the index cannot read ranges of an archive.
        """
        try:
            from pip._internal.network import lazy_wheel
        except ImportError as error:
            raise _no_part(release, error) from error
        try:
            with (
                lazy_wheel.LazyZipOverHTTP(release.url, self._session) as remote,
                zipfile.ZipFile(remote) as archive,
            ):
                wanted = [
                    entry
                    for entry in archive.infolist()
                    if _wanted(entry.filename) and entry.file_size <= FILE_LIMIT_BYTES
                ]
                for entry in wanted:
                    path = folder / entry.filename
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(entry))
        except (lazy_wheel.HTTPRangeRequestUnsupported, zipfile.BadZipFile) as error:
            raise _no_part(release, error) from error
        return len(wanted)


def _no_part(release: Release, error: Exception) -> NoSourceError:
    return NoSourceError(
        f"vLLM {release.version}: no source published, and its wheel cannot be read in part: "
        f"{error or type(error).__name__}."
    )


def _preference(candidate: Any) -> tuple[Any, bool]:
    """A sort key that puts newer versions first, and archives before wheels."""
    return candidate.version, not candidate.link.is_wheel


@contextmanager
def open_index() -> Iterator[Index]:
    """Open the package index of this Python's pip.

    Raises:
        NoSourceError: pip is not installed, or its internals have changed.
    """
    try:
        from pip._internal.commands import create_command

        command: Any = create_command("index")
        options, _ = command.parse_args(["versions", PROJECT])
        # pip warns about each index that does not contain vLLM.
        logging.getLogger("pip").setLevel(logging.ERROR)
    except (ImportError, AttributeError) as error:
        raise NoSourceError(f"pip is needed to fetch sources: {error}") from error
    with command.main_context():
        session = command._build_session(options)
        try:
            # Accept releases for other Python versions and machines, because the source is only
            # read.
            finder = command._build_package_finder(
                options=options, session=session, ignore_requires_python=True
            )
            yield Index(session, finder)
        finally:
            session.close()


def keep(archive: Path, folder: Path) -> int:
    """Unpack the Python files in the folders `KEPT`, and return the number of files.

    The archive's top folder is removed from the paths. Only regular files are written, and only
    inside `folder`.
    """
    kept = 0
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            if not member.isreg() or not _wanted(name) or member.size > FILE_LIMIT_BYTES:
                continue
            content = tar.extractfile(member)
            if content is None:
                continue
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
            kept += 1
    return kept


def _wanted(name: str) -> bool:
    parts = name.split("/")
    return (
        name.endswith(".py")
        and not any(part in ("", ".", "..") for part in parts)
        and any(name == kept or name.startswith(f"{kept}/") for kept in KEPT)
    )


class Cache:
    """A cache of sources with one folder per version: `CACHE/0.12.0/vllm/…`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, version: str) -> bool:
        """Whether the cache contains this version with all folders in `KEPT`."""
        try:
            manifest = json.loads((self.folder / version / MANIFEST).read_text())
        except (OSError, ValueError):
            return False
        return isinstance(manifest, dict) and manifest.get("kept") == list(KEPT)

    def versions(self) -> list[str]:
        """The newest cached version of each minor version, in ascending order."""
        found = (path.parent.name for path in self.folder.glob(f"*/{MANIFEST}"))
        here = sorted(filter(self.has, found), key=_numbers)
        return list({minor_of(version): version for version in here}.values())

    def path(self, version: str) -> Path:
        """The folder that contains this version's `vllm` package."""
        return self.folder / version

    def fetch(self, index: Index, release: Release, report: Progress) -> Path:
        """Return the sources of a release. Download them if the cache does not contain them.

        Raises:
            NoSourceError: the sources are not available.
        """
        folder = self.path(release.version)
        if self.has(release.version):
            return folder
        partial = self.folder / f".{release.version}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            if release.is_wheel:
                report(f"vLLM {release.version}: no source published; reading its wheel in part")
                files, read = index.read_wheel(release, partial), "a wheel, in part"
            else:
                report(f"vLLM {release.version}: downloading its source")
                archive = partial / "source.tar.gz"
                index.download(release, archive)
                files, read = keep(archive, partial), "the source archive"
                archive.unlink()
            if not files:
                raise NoSourceError(
                    f"vLLM {release.version}: the published archive contains no vllm/v1."
                )
            manifest = {"kept": list(KEPT), "read": read}
            (partial / MANIFEST).write_text(json.dumps(manifest))
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
            report(f"vLLM {release.version}: {files} files stored from {read}")
        except (tarfile.TarError, EOFError, OSError) as error:
            # The reason appears in the docs, so omit the error's message: it may contain a host
            # name.
            raise NoSourceError(
                f"vLLM {release.version}: its source was not read ({type(error).__name__})."
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return folder


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
