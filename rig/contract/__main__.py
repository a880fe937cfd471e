"""Check the published sources of vLLM for the names that the plugin uses.

python -m rig.contract                            every supported version; writes the docs' page
python -m rig.contract --versions 0.12,0.32       only these versions; writes no file
python -m rig.contract --tree .venv-vllm/lib/python3.11/site-packages    an installed vLLM

A hook is a name inside vLLM that the plugin uses. The exit status is 0 if every required hook
exists. It is 1 if a required hook is missing or different. It is 2 if the usage is wrong, or if a
version could not be read.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rig.contract import report
from rig.contract.reader import SourceTree
from rig.contract.sources import Cache, Index, NoSourceError, Release, minor_of, open_index
from rig.contract.table import FIRST, LAST

DOCS = Path(__file__).resolve().parents[2] / "docs" / "vllm-versions.md"
CACHE = Path.home() / ".cache" / "tailspan" / "vllm-sources"
SUPPORTED = [(FIRST[0], minor) for minor in range(FIRST[1], LAST[1] + 1)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = _options().parse_args(argv)
    if options.tree is not None:
        if not (options.tree / "vllm").is_dir():
            print(f"--tree: {options.tree} contains no folder vllm", file=sys.stderr)
            return 2
        found, unread = _check({str(options.tree): options.tree})
    else:
        wanted = options.versions or SUPPORTED
        paths, unread = _fetch(Cache(options.cache), wanted, offline=options.offline)
        found, unreadable = _check(paths)
        unread |= unreadable
    for reason in unread.values():
        print(reason, file=sys.stderr)
    if options.tree is None and not options.versions and found:
        DOCS.parent.mkdir(exist_ok=True)
        DOCS.write_text(report.markdown(found, unread), encoding="utf-8")
        print(f"written: {DOCS.relative_to(DOCS.parents[1])}")
    if any(report.broken(findings) for findings in found.values()):
        return 1
    return 2 if unread or not found else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=report.COMMAND, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--versions", type=_minors, help="minor versions, for example 0.12,0.33")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help=f"folder of the downloaded sources ({CACHE})"
    )
    parser.add_argument("--offline", action="store_true", help="read only the cache")
    parser.add_argument(
        "--tree", type=Path, help="check the vllm package in this folder, and no published source"
    )
    return parser


def _minors(text: str) -> list[tuple[int, int]]:
    try:
        return [minor_of(version.strip()) for version in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _fetch(
    cache: Cache, wanted: Sequence[tuple[int, int]], *, offline: bool
) -> tuple[dict[str, Path], dict[str, str]]:
    """The folder with the sources of each version, and the reason for which a version's sources are
    missing."""
    paths: dict[str, Path] = {}
    unread: dict[str, str] = {}
    with ExitStack() as stack:
        index: Index | None = None
        if offline:
            known = {minor_of(version): version for version in cache.versions()}
        else:
            try:
                index = stack.enter_context(open_index())
                releases = {release.minor: release for release in index.releases()}
            except NoSourceError as error:
                return {}, {"": str(error)}
            known = {minor: release.version for minor, release in releases.items()}
            for version in _newer(releases):
                print(f"vLLM {version} is published, and the contract does not cover it yet")
        for minor in wanted:
            name = f"{minor[0]}.{minor[1]}"
            if minor not in known:
                where = "in the cache" if offline else "published"
                unread[name] = f"vLLM {name}: no source {where}."
                continue
            try:
                if index is not None:
                    cache.fetch(index, releases[minor], _report)
                paths[known[minor]] = cache.path(known[minor])
            except NoSourceError as error:
                unread[name] = str(error)
    return paths, unread


def _newer(releases: dict[tuple[int, int], Release]) -> Iterator[str]:
    for minor, release in releases.items():
        if minor > LAST:
            yield release.version


def _check(paths: dict[str, Path]) -> tuple[dict[str, report.Findings], dict[str, str]]:
    found: dict[str, report.Findings] = {}
    unread: dict[str, str] = {}
    for version, path in paths.items():
        try:
            found[version] = report.check(SourceTree(path))
        except ValueError as error:
            unread[version] = f"vLLM {version}: {error}."
            continue
        for line in report.lines(version, found[version]):
            print(line)
    return found, unread


def _report(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
