import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tailspan_vllm import guard
from tailspan_vllm.engine_core.block_hashes import BlockHashes, HashReader
from tailspan_vllm.engine_core.observer import EngineObserver
from tailspan_vllm.engine_core.step_ledger import Track
from tailspan_vllm.request.prefix_ladder import HASH_BYTES, POSITIONS

EMPTY = b"\xee" * 32


def request(tokens: int, **changed: Any) -> Any:
    """Return a request whose n-th block has the hash n n n …"""
    hashed = [bytes([1 + number % 250]) * 32 for number in range(tokens // 16)]
    return SimpleNamespace(
        **{"request_id": "r", "num_tokens": tokens, "block_hashes": hashed, **changed}
    )


@pytest.fixture(autouse=True)
def hashing(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("vllm.v1.core.kv_cache_utils")
    module.NONE_HASH = EMPTY
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_some_hashes_are_copied_in_part() -> None:
    read = HashReader(SimpleNamespace(block_size=16)).of
    found = read(request(16 * 11 + 5))
    assert found == BlockHashes(
        16, b"".join(bytes([n]) * HASH_BYTES for n in (0xEE, 1, 2, 3, 4, 5, 6, 7, 8, 10))
    )
    longest = read(request(16 * 100_000))
    assert longest is not None
    assert len(longest.hashes) == HASH_BYTES * (1 + len(POSITIONS))


def test_incomplete_block_hashes_are_not_read() -> None:
    read = HashReader(SimpleNamespace(block_size=64, hash_block_size=16)).of
    assert read(request(64)) is not None
    assert read(request(64, num_tokens=80)) is None


@pytest.mark.parametrize(
    ("scheduler", "named"),
    [
        (SimpleNamespace(), "block_size"),
        (SimpleNamespace(block_size=None), "block_size"),
        (SimpleNamespace(block_size=0), "block_size"),
        (SimpleNamespace(block_size=10**9), "block_size"),
    ],
)
def test_missing_hash_attributes_are_named(scheduler: Any, named: str, hashing: Any) -> None:
    with pytest.raises(LookupError, match=named):
        HashReader(scheduler)
    del hashing.NONE_HASH
    with pytest.raises(LookupError, match="NONE_HASH"):
        HashReader(SimpleNamespace(block_size=16))


class Tracking(EngineObserver):
    def __init__(self, *, ladders: bool) -> None:
        super().__init__(SimpleNamespace(put=print, flush=print), 0, ladders=ladders)  # type: ignore[arg-type]
        self.track: Any = Track("r", 0.0)
        self._tracks["r"] = self.track


@pytest.mark.parametrize(
    ("ladders", "ends", "read", "failed"),
    [
        (True, request(40), True, 0),
        (False, request(40), False, 0),
        (True, request(40, request_id="not tracked"), False, 0),
        (True, request(5), False, 0),
        (True, SimpleNamespace(request_id="r", num_tokens=40), False, 0),
        (True, request(40, block_hashes=None), False, 0),
        (True, request(40, block_hashes=[1, 2]), False, 1),
        (True, SimpleNamespace(request_id="r", block_hashes=[EMPTY]), False, 1),
    ],
)
def test_an_ended_request_has_its_hashes_unless_vllm_has_none(
    ladders: bool, ends: Any, read: bool, failed: int
) -> None:
    before = guard.failures["prefix_ladder"]
    observer = Tracking(ladders=ladders)
    observer.ends(SimpleNamespace(block_size=16), ends)
    assert (observer.track.block_hashes is not None) == read
    assert guard.failures["prefix_ladder"] == before + failed


def test_after_a_failure_no_hashes_are_read() -> None:
    observer = Tracking(ladders=True)
    before = guard.failures["prefix_ladder"]
    for _ in range(3):
        observer.ends(SimpleNamespace(), request(40))
    observer.ends(SimpleNamespace(block_size=16), request(40))
    assert observer.track.block_hashes is None
    assert guard.failures["prefix_ladder"] == before + 1
