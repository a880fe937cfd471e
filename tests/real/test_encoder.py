import base64
import random
import statistics
import struct
import subprocess
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import randrange
from typing import Any

import pytest

import rig
from rig import install
from rig.load import Call, mixed, send_all
from tests.real.conftest import assert_parts_sum

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def seeing(start_module_vllm: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a vLLM with a small image encoder, whose step model is fitted."""
    folder = tmp_path_factory.mktemp("multimodal")
    script = Path(rig.__file__).with_name("multimodal_model.py")
    subprocess.run([str(install.PYTHON), str(script), str(folder)], check=True)
    server = start_module_vllm("--load-format", "dummy", model=folder)
    send_all(server.port, [call for call in mixed(160, seed=71) if call.chat], concurrency=8)
    return server


def picture(seed: int) -> str:
    """Return a PNG of random colours, as a data URL."""
    draw = random.Random(seed)
    rows = b"".join(b"\0" + draw.randbytes(3 * 32) for _ in range(32))

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows))
    return "data:image/png;base64," + base64.b64encode(png + chunk(b"IEND", b"")).decode()


def looking(seed: int) -> Call:
    content = [
        {"type": "text", "text": f"what is {seed}"},
        {"type": "image_url", "image_url": {"url": picture(seed)}},
    ]
    return Call(max_tokens=8, body={"messages": [{"role": "user", "content": content}]})


def test_an_image_has_the_encoders_time_and_a_cached_image_has_none(
    seeing: Any, tailspan: Any
) -> None:
    before = seeing.own_metrics()
    images = [looking(randrange(100, 2**32)) for _ in range(8)]  # not in the encoder's cache
    new = send_all(seeing.port, images, concurrency=1)
    again = send_all(
        seeing.port, [replace(images[-1], prompt="again") for _ in range(2)], concurrency=1
    )
    plain = send_all(seeing.port, [Call(prompt="w" * 48, max_tokens=8)] * 8, concurrency=1)
    assert {each.status for each in (*new, *again, *plain)} == {200}
    rows = tailspan.stored([*new, *again, *plain])
    for row in rows.values():
        assert_parts_sum(row, whole=True)
        assert 0 <= row["encoder_s"] <= row["prefill_own_s"] + 1e-6
    of_new = [rows[each.trace_id] for each in new]
    of_plain = [rows[each.trace_id] for each in plain]
    # Another program on this machine can stall a step, but not most of the steps.
    assert statistics.median(row["prefill_stall_s"] for row in of_new) == 0
    assert {rows[each.trace_id]["encoder_s"] for each in (*again, *plain)} == {0}
    # All requests have nearly the same number of tokens, so the difference is the encoder's time.
    longer_s = statistics.median(row["prefill_s"] for row in of_new) - statistics.median(
        row["prefill_s"] for row in of_plain
    )
    encoder_s = statistics.median(row["encoder_s"] for row in of_new)
    assert encoder_s == pytest.approx(longer_s, rel=0.25)
    own = seeing.own_metrics()
    time.sleep(2)
    last = tailspan.samples(f"vllm-{seeing.port}")[-1]
    for kind, count in (("queries", 10), ("hits", 2)):
        name = f"vllm:mm_cache_{kind}_total"
        assert last[f"mm_cache_{kind}_total"] == own[name]
        assert own[name] - before.get(name, 0) == count


def test_requests_without_images_are_delayed_by_the_encoder(seeing: Any, tailspan: Any) -> None:
    """For a request without images, the encoder's time counts as the prefill of other requests, not
    as a stall."""
    calls = [Call(prompt=f"long {number}", max_tokens=600) for number in range(3)]
    calls += [looking(randrange(100, 2**32)) for _ in range(6)]  # not in the encoder's cache
    seen = send_all(seeing.port, calls, concurrency=9)
    rows = tailspan.stored(seen)
    for row in rows.values():
        assert_parts_sum(row, whole=True)
    plain = [rows[each.trace_id] for each in seen[:3]]
    encoded_s = sum(rows[each.trace_id]["encoder_s"] for each in seen[3:])
    assert encoded_s > 0
    for row in plain:
        assert row["encoder_s"] == 0
        delayed_s = row["prefill_others_prefill_s"] + row["decode_others_prefill_s"]
        assert delayed_s > 0.5 * encoded_s
