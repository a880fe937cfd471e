"""The explorer's process: Streamlit, with what takes long to come by at hand beforehand.

    python -P -m ui.serve ui/app.py [STREAMLIT'S OPTIONS]

Else the first who opens a page waits for our imports, and whoever asks why for the columns of
the last day's requests.
"""

import sys
import threading
import time
from contextlib import suppress
from typing import Final

import pyarrow as pa
from streamlit.web import cli

from store.database import default_url
from store.errors import StoreError
from store.queries import Window
from ui.page import BODIES
from ui.sharing import kept_evidence, opened

HOUR_NS: Final = 3_600 * 10**9
HOURS: Final = 48
"""The longest range that is offered, and what it is compared with."""
ENOUGH_ROWS: Final = 1_000_000
"""Read ahead of any question: some 180 MB."""
AGAIN_S: Final = 300


def main() -> None:
    """Run until told to end."""
    assert BODIES  # all pages are imported by now
    # Arrow's own allocator holds more than is used, and takes longer to come by it.
    pa.set_memory_pool(pa.system_memory_pool())
    threading.Thread(target=_read_ahead, name="read ahead", daemon=True).start()
    cli.main(["run", *sys.argv[1:]], prog_name="streamlit")


def _read_ahead() -> None:
    while True:
        with suppress(StoreError):  # who opens a page is told
            read_ahead(time.time_ns())
        time.sleep(AGAIN_S)


def read_ahead(now_unix_ns: int) -> None:
    """Have the last hours' columns at hand: an hour at a time, for others ask in between.

    Raises:
        StoreError: the database cannot be opened, or does not answer.
    """
    kept = kept_evidence(opened(default_url()))
    for back in range(HOURS):
        end_ns = now_unix_ns - back * HOUR_NS
        kept.read(Window(end_ns - HOUR_NS, end_ns), {})
        if kept.requests >= ENOUGH_ROWS:
            return


if __name__ == "__main__":
    main()
