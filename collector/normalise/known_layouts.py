"""Read a metrics message by the known layouts of its scopes (see `sample_layouts`).

The key of a layout is the scope's bytes with zeros in place of its numbers. Replicas with the same
metrics share a layout. Thread-safe.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from collector.normalise.batch import NormalisedBatch
from collector.normalise.layout_learning import Learned
from collector.normalise.otlp_envelope import MAX_PARTS, encoded_scopes
from collector.normalise.resources import origin_of
from collector.normalise.sample_layouts import LayoutDescription, SampleLayout

MAX_BYTES: Final = 2**26
"""Maximum memory for layouts. This is enough for the layouts of about 600 machines with eight GPUs,
or of 1,200 kinds of engines."""
_NUMBER_BYTES: Final = 320
"""Bytes of memory for one number of a layout. `tracemalloc` measured 250 bytes for engines and 310
for GPUs."""
MAX_FORMS: Final = 8
"""A form is the positions of the numbers in a scope. This is the maximum number of forms for scopes
of the same length. The forms are tried one after another."""
_MAX_MISSES: Final = 4_096

_Mask = npt.NDArray[np.uint8]


class _Form:
    __slots__ = ("latest", "layouts", "length", "mask", "offsets")

    def __init__(self, length: int, offsets: tuple[int, ...]) -> None:
        self.length = length
        self.offsets = offsets
        self.mask: _Mask = np.full(length, 0xFF, np.uint8)
        for offset in offsets:
            self.mask[offset : offset + 8] = 0
        self.layouts = 0
        self.latest = b""

    def key(self, scoped: bytes, simulated: bool) -> "_Key":
        masked = (np.frombuffer(scoped, np.uint8) & self.mask).tobytes()
        # `latest` is the key that was found most recently. Its hash is cached, and comparing it
        # with a new key is faster than hashing the new key.
        return self, simulated, self.latest if masked == self.latest else masked


_Key = tuple[_Form, bool, bytes]
"""The form, whether the sender is simulated, and the scope's bytes with zeros in place of
numbers."""


class KnownLayouts:
    """The learned layouts. The least recently used layouts are removed first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._forms: dict[int, list[_Form]] = {}
        self._layouts: OrderedDict[_Key, SampleLayout] = OrderedDict()
        self._size_bytes = 0
        self._missed: OrderedDict[int, None] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """The memory that the layouts use."""
        return self._size_bytes

    def __len__(self) -> int:
        return len(self._layouts)

    def read(self, body: bytes, now_unix_ns: int) -> NormalisedBatch | None:
        """The samples of a metrics message, as `normalise_points` returns them.

        Return None if `normalise_points` must read the message, for one of these reasons:
        - A layout is unknown, or a number is invalid.
        - Two samples have the same key.
        - There are too many points.

        Raises:
            MalformedError: the body is not an OTLP message.
            TooLargeError: it has too many resources and scopes.
        """
        batch = NormalisedBatch()
        for resource, scoped, _ in encoded_scopes(body):
            origin = origin_of(resource)
            layout = self._find(scoped, origin.simulated)
            rows = None if layout is None else layout.read(scoped, origin, now_unix_ns)
            if layout is None or rows is None:
                return None
            about = layout.about
            batch.samples += rows.samples
            batch.gpus += rows.gpus
            batch.sample_points += [each.points for each in about.engines]
            batch.gpu_points += [each.points for each in about.gpus]
            batch.accepted += about.accepted
            if about.skipped:
                batch.skipped.update(about.skipped)
            batch.truncated_texts += about.truncated_texts + origin.truncated_texts
        # `normalise_points` joins samples with the same key. It refuses a message with too many
        # points.
        few = batch.accepted + batch.skipped.total() <= MAX_PARTS
        return batch if few and _are_distinct(batch) else None

    def missed_before(self, body_bytes: int) -> bool:
        """Return whether an earlier message of the same size had no known layout.

        Call it once for each message without a known layout. If it returns true, the message
        probably repeats, and its layouts are learned.
        """
        with self._lock:
            before = body_bytes in self._missed
            self._missed[body_bytes] = None
            self._missed.move_to_end(body_bytes)
            if len(self._missed) > _MAX_MISSES:
                self._missed.popitem(last=False)
            return before

    def add(self, several: Iterable[Learned]) -> None:
        """Add layouts, and remove the least recently used ones above the memory limit."""
        with self._lock:
            for each in several:
                self._add(each)

    def _find(self, scoped: bytes, simulated: bool) -> SampleLayout | None:
        with self._lock:
            for form in self._forms.get(len(scoped), ()):
                key = form.key(scoped, simulated)
                if (layout := self._layouts.get(key)) is not None:
                    self._layouts.move_to_end(key)
                    form.latest = key[2]
                    return layout
        return None

    def _add(self, learned: Learned) -> None:
        form = self._form(len(learned.scoped), learned.about)
        key = form.key(learned.scoped, learned.simulated)
        if key in self._layouts:
            return
        self._layouts[key] = SampleLayout(learned.about)
        form.layouts += 1
        self._size_bytes += _size_bytes(form)
        while self._size_bytes > self._max_bytes and len(self._layouts) > 1:
            self._remove(next(iter(self._layouts)))

    def _form(self, length: int, about: LayoutDescription) -> _Form:
        offsets = tuple(each.offset for each in about.numbers)
        forms = self._forms.get(length, [])
        for form in forms:
            if form.offsets == offsets:
                return form
        if len(forms) >= MAX_FORMS:
            for key in [key for key in self._layouts if key[0] is forms[0]]:
                self._remove(key)
        form = _Form(length, offsets)
        self._forms.setdefault(length, []).append(form)
        return form

    def _remove(self, key: _Key) -> None:
        form = key[0]
        del self._layouts[key]
        form.layouts -= 1
        self._size_bytes -= _size_bytes(form)
        if not form.layouts:
            forms = self._forms[form.length]
            forms.remove(form)
            if not forms:
                del self._forms[form.length]


def _size_bytes(form: _Form) -> int:
    return form.length + _NUMBER_BYTES * len(form.offsets)


def _are_distinct(batch: NormalisedBatch) -> bool:
    samples, gpus = batch.samples, batch.gpus
    if len(samples) + len(gpus) == 1:
        return True
    engines = {(each.replica, each.engine, each.process, each.at_unix_ns) for each in samples}
    devices = {(each.replica, each.gpu, each.at_unix_ns) for each in gpus}
    return len(engines) == len(samples) and len(devices) == len(gpus)
