"""Published sources of vLLM: found and downloaded by pip's own client, and never built.

`pip download` runs a source archive's build backend to learn its metadata. So pip is asked
for its two halves only, the index and the session, with whatever index, proxy, certificate
and credentials it is configured with here; the archive is then read as a tar of text.
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
"""The parts kept of an archive: wide enough that a new row of the contract seldom asks for
another download; the rest of an archive is kernels and models."""
FILE_LIMIT_BYTES = 4_000_000
"""No module of vLLM's is a tenth of this; an archive that claims more is not read into memory."""
MANIFEST = "sources.json"

Progress = Callable[[str], None]


class NoSourceError(Exception):
    """A version's source is not available; the message gives the reason in one sentence."""


@dataclass(frozen=True, slots=True)
class Release:
    """A published release: its source archive, or a wheel where no source was published."""

    version: str
    url: str
    is_wheel: bool
    digest_name: str
    digest: str

    @property
    def minor(self) -> tuple[int, int]:
        """The version's first two numbers."""
        return minor_of(self.version)


def minor_of(version: str) -> tuple[int, int]:
    """(0, 12) of "0.12", "0.12.0" or "0.12.0.post1"."""
    try:
        major, minor = version.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise ValueError(f"version: {version!r} does not begin like 0.12") from None


class Index:
    """The package index that pip is configured with."""

    def __init__(self, session: Any, finder: Any) -> None:
        self._session = session
        self._finder = finder

    def releases(self) -> list[Release]:
        """The newest published, unyanked release of each minor version, ascending.

        Raises:
            NoSourceError: the index lists none.
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
            raise NoSourceError(f"pip's index tells of no release of {PROJECT}; is it reachable?")
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
            NoSourceError: the index does not answer with it, or its digest is another.
        """
        if release.digest_name not in ("sha256", "sha384", "sha512"):
            raise NoSourceError(f"vLLM {release.version}: the index gives no digest to check.")
        digest = hashlib.new(release.digest_name)
        # As pip asks: an archive must not be unpacked by the HTTP layer before it is hashed.
        answer = self._session.get(
            release.url, headers={"Accept-Encoding": "identity"}, stream=True
        )
        if answer.status_code != 200:
            raise NoSourceError(
                f"vLLM {release.version}: the index answered {answer.status_code} to its source."
            )
        with to.open("wb") as file:
            for block in answer.iter_content(1 << 20):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != release.digest:
            raise NoSourceError(
                f"vLLM {release.version}: the archive's {release.digest_name} is "
                f"{digest.hexdigest()}, the index says {release.digest}."
            )

    def read_wheel(self, release: Release, folder: Path) -> int:
        """Keep what is wanted of a wheel, asking the index for those ranges of it alone.

        A wheel is half a gigabyte, its Python a thousandth of that. The wheel's own digest
        cannot be checked so; zip checks each file's.

        Returns: the number of files kept.

        Raises:
            NoSourceError: this pip, or the index, does not read archives in part.
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
    """Newer first; of one version, the source before a wheel."""
    return candidate.version, not candidate.link.is_wheel


@contextmanager
def open_index() -> Iterator[Index]:
    """Reach the index as the pip of this Python would.

    Raises:
        NoSourceError: there is no pip here, or its internals are not the expected ones.
    """
    try:
        from pip._internal.commands import create_command

        command: Any = create_command("index")
        options, _ = command.parse_args(["versions", PROJECT])
        # Which of its configured places has no vLLM is of no use here.
        logging.getLogger("pip").setLevel(logging.ERROR)
    except (ImportError, AttributeError) as error:
        raise NoSourceError(f"sources are fetched with pip's client, not found: {error}") from error
    with command.main_context():
        session = command._build_session(options)
        try:
            # A source that is only read need not suit this Python, nor this machine.
            finder = command._build_package_finder(
                options=options, session=session, ignore_requires_python=True
            )
            yield Index(session, finder)
        finally:
            session.close()


def keep(archive: Path, folder: Path) -> int:
    """Unpack the Python files under `KEPT`, dropping the archive's top folder.

    Only regular files are written, and only to names that lie inside `folder`.

    Returns: the number of files kept.
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
    """Sources already read, a folder per version: `CACHE/0.12.0/vllm/…`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, version: str) -> bool:
        """Whether this version lies here, complete by today's `KEPT`."""
        try:
            manifest = json.loads((self.folder / version / MANIFEST).read_text())
        except (OSError, ValueError):
            return False
        return isinstance(manifest, dict) and manifest.get("kept") == list(KEPT)

    def versions(self) -> list[str]:
        """The versions that lie here, the newest of each minor, ascending."""
        found = (path.parent.name for path in self.folder.glob(f"*/{MANIFEST}"))
        here = sorted(filter(self.has, found), key=_numbers)
        return list({minor_of(version): version for version in here}.values())

    def path(self, version: str) -> Path:
        """The folder in which this version's `vllm` package lies."""
        return self.folder / version

    def fetch(self, index: Index, release: Release, say: Progress) -> Path:
        """This release's sources, downloaded if they are not here already.

        Raises:
            NoSourceError: they cannot be had.
        """
        folder = self.path(release.version)
        if self.has(release.version):
            return folder
        partial = self.folder / f".{release.version}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            if release.is_wheel:
                say(f"vLLM {release.version}: no source published; reading its wheel in part")
                files, read = index.read_wheel(release, partial), "a wheel, in part"
            else:
                say(f"vLLM {release.version}: downloading its source")
                archive = partial / "source.tar.gz"
                index.download(release, archive)
                files, read = keep(archive, partial), "the source archive"
                archive.unlink()
            if not files:
                raise NoSourceError(f"vLLM {release.version}: what is published holds no vllm/v1.")
            manifest = {"kept": list(KEPT), "read": read}
            (partial / MANIFEST).write_text(json.dumps(manifest))
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
            say(f"vLLM {release.version}: {files} files kept of {read}")
        except (tarfile.TarError, EOFError, OSError) as error:
            # The message may name a host, and goes where none should stand: the docs.
            raise NoSourceError(
                f"vLLM {release.version}: its source was not read ({type(error).__name__})."
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return folder


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
