"""What machines read: JSON on standard output, without rich, which takes longer to import than a short command runs."""

import sys
from typing import Any

import msgspec


def emit(value: Any) -> None:
    """One JSON document, indented, with a newline."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def emit_line(value: Any) -> None:
    """One JSON document on one line, at once: an element of a stream."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()
