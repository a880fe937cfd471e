import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from rig.contract.sources import (
    FILE_LIMIT_BYTES,
    Cache,
    Index,
    NoSourceError,
    Release,
    keep,
    minor_of,
)

MODULE = b"class A: ...\n"


def _tar(entries: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return buffer.getvalue()


@dataclass
class Session:
    content: bytes
    status_code: int = 200
    asked: list[str] = field(default_factory=list)

    def get(self, url: str, **_: Any) -> "Session":
        self.asked.append(url)
        return self

    def iter_content(self, size: int) -> Iterator[bytes]:
        yield from (self.content[at : at + size] for at in range(0, len(self.content), size))


def _candidate(version: str, *, wheel: bool = False, yanked: bool = False) -> Any:
    name = f"vllm-{version}" + ("-py3-none-any.whl" if wheel else ".tar.gz")
    link = SimpleNamespace(
        filename=name,
        is_wheel=wheel,
        is_yanked=yanked,
        url_without_fragment=f"host.example/{name}",
        hash_name="sha256",
        hash="0" * 64,
    )
    return SimpleNamespace(version=Version(version), link=link)


def _index(*candidates: Any, content: bytes = b"") -> Index:
    finder = SimpleNamespace(find_all_candidates=lambda _: list(candidates))
    return Index(Session(content), finder)


def _release(content: bytes, version: str = "0.12.0") -> Release:
    digest = hashlib.sha256(content).hexdigest()
    return Release(version, "host.example/vllm.tar.gz", False, "sha256", digest)


def test_the_newest_patch_of_each_minor_is_chosen() -> None:
    index = _index(
        *map(_candidate, ("0.9.0", "0.14.2", "0.14.10", "0.14.11rc1", "0.13.0")),
        _candidate("0.13.1", yanked=True),
    )
    assert [release.version for release in index.releases()] == ["0.9.0", "0.13.0", "0.14.10"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_source_is_preferred_to_a_wheel(order: int) -> None:
    both = [_candidate("0.14.0", wheel=True), _candidate("0.14.0")][::order]
    releases = _index(*both, _candidate("0.15.0"), _candidate("0.15.1", wheel=True)).releases()
    assert [(release.version, release.is_wheel) for release in releases] == [
        ("0.14.0", False),
        ("0.15.1", True),
    ]


def test_an_empty_index_is_no_answer() -> None:
    """pip reports an unreachable index as an empty index."""
    with pytest.raises(NoSourceError, match="is reachable"):
        _index().releases()


def test_only_the_required_python_files_are_stored(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(
        _tar(
            {
                "vllm-1/vllm/v1/request.py": MODULE,
                "vllm-1/vllm/v1/kernel.cu": b"x",
                "vllm-1/vllm/models/llama.py": MODULE,
                "vllm-1/vllm/v1/../../../escaped.py": MODULE,
                "vllm-1//vllm/v1/absolute.py": MODULE,
                "vllm-1/vllm/v1/huge.py": b"#" * (FILE_LIMIT_BYTES + 1),
            },
            links={"vllm-1/vllm/v1/link.py": "/etc/passwd"},
        )
    )
    folder = tmp_path / "kept"
    assert keep(archive, folder) == 1
    assert [path.name for path in tmp_path.rglob("*.py")] == ["request.py"]


def test_a_fetched_version_is_not_fetched_again(tmp_path: Path) -> None:
    content = _tar({"vllm-0.12.0/vllm/v1/request.py": MODULE})
    session = Session(content)
    index, cache = Index(session, None), Cache(tmp_path / "cache")
    progress: list[str] = []
    for _ in range(2):
        path = cache.fetch(index, _release(content), progress.append)
    assert (path / "vllm/v1/request.py").read_bytes() == MODULE
    assert len(session.asked) == 1
    assert cache.versions() == ["0.12.0"]
    assert not list(cache.folder.rglob("*.gz"))
    assert any("0.12.0" in line for line in progress)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (_tar({"vllm-0.12.0/README.md": b""}), "contains no vllm/v1"),
        (b"no archive", "was not read"),
        (_tar({"vllm-0.12.0/vllm/v1/request.py": MODULE * 99})[:70], "was not read"),
    ],
    # pytest's default test ids would contain the archives. An archive contains its creation time,
    # but all test workers need the same ids.
    ids=["another's", "none", "cut short"],
)
def test_an_invalid_archive_is_not_stored(tmp_path: Path, content: bytes, why: str) -> None:
    cache = Cache(tmp_path)
    with pytest.raises(NoSourceError, match=why):
        cache.fetch(Index(Session(content), None), _release(content), lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_of_another_digest_is_refused(tmp_path: Path) -> None:
    content = _tar({"vllm-0.12.0/vllm/v1/request.py": MODULE})
    with pytest.raises(NoSourceError, match="sha256 is"):
        Cache(tmp_path).fetch(
            Index(Session(content + b"x"), None), _release(content), lambda _: None
        )


def test_an_error_names_no_host(tmp_path: Path) -> None:
    """The docs may quote the reason of a failure, so it must not contain a host."""

    class Broken:
        def get(self, url: str, **_: Any) -> None:
            raise ConnectionError(f"cannot reach {url}")

    with pytest.raises(NoSourceError) as refused:
        Cache(tmp_path).fetch(Index(Broken(), None), _release(b""), lambda _: None)
    assert "host.example" not in str(refused.value)
    assert "ConnectionError" in str(refused.value)


def test_a_wheel_is_read_without_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pip._internal.network import lazy_wheel

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("vllm/v1/request.py", MODULE)
        archive.writestr("vllm/_C.so", b"x")
        archive.writestr("../vllm/v1/escaped.py", MODULE)
    open_remote: Callable[..., io.BytesIO] = lambda *_: io.BytesIO(buffer.getvalue())  # noqa: E731
    monkeypatch.setattr(lazy_wheel, "LazyZipOverHTTP", open_remote)
    release = Release("0.15.1", "host.example/vllm.whl", True, "sha256", "0" * 64)
    path = Cache(tmp_path).fetch(Index(None, None), release, lambda _: None)
    assert [file.relative_to(path).as_posix() for file in path.rglob("*.py")] == [
        "vllm/v1/request.py"
    ]


@pytest.mark.parametrize("text", ["", "0", "zero.twelve", "v0.12"])
def test_an_invalid_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="begins with two numbers"):
        minor_of(text)


def test_versions_in_the_cache_are_ordered_as_versions(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for version in ("0.14.10", "0.14.2", "0.9.0"):
        content = _tar({f"vllm-{version}/vllm/v1/request.py": MODULE})
        cache.fetch(Index(Session(content), None), _release(content, version), lambda _: None)
    assert cache.versions() == ["0.9.0", "0.14.10"]
