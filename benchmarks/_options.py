"""Command-line options that several benchmarks with a real server have."""

import argparse
import shlex


def add_server(parser: argparse.ArgumentParser) -> None:
    """Add the option `--server`, the command of a different server."""
    parser.add_argument(
        "--server",
        type=shlex.split,
        default=[],
        metavar="COMMAND",
        help="start another server: a command without port and name, such as 'vllm serve FOLDER'",
    )


def two_numbers(text: str) -> tuple[int, int]:
    """Read two integers, separated by a comma.

    Raises:
        ValueError: the text is not two integers.
    """
    first, second = text.split(",")
    return int(first), int(second)
