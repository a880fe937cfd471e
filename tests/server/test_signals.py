import subprocess
import sys
from signal import SIGHUP, SIGINT, SIGTERM

PROGRAM = """
import asyncio, os, signal, sys
from server import signals

signals.REPEAT_S = {wish}
{before}
async def send(number):
    os.kill(os.getpid(), number)
    for _ in range(10):  # the event loop handles a signal within two turns
        await asyncio.sleep(0)

async def main():
    stop = signals.stop_on_signals(lambda: print("at once", flush=True))
    await send({first})
    print("asked" if stop.is_set() else "not asked", flush=True)
    await send({second})
    print("stopped", flush=True)

asyncio.run(main())
"""


def run(first: int, second: int = 0, wish: float = 0, before: str = "") -> tuple[int, list[str]]:
    """Run a program that sends itself two signals; 0 means no signal."""
    code = PROGRAM.format(first=int(first), second=int(second), wish=wish, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.split("\n")[:-1]


def test_a_signal_asks_to_stop() -> None:
    assert run(SIGHUP) == (0, ["asked", "stopped"])


def test_a_second_signal_ends_the_process_at_once() -> None:
    assert run(SIGINT, SIGINT) == (-SIGINT, ["asked", "at once"])
    assert run(SIGTERM, SIGINT) == (-SIGINT, ["asked", "at once"])


def test_a_repeated_signal_counts_once() -> None:
    assert run(SIGINT, SIGINT, wish=60) == (0, ["asked", "stopped"])


def test_under_nohup_sighup_is_ignored() -> None:
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert run(SIGHUP, before=ignored) == (0, ["not asked", "stopped"])
