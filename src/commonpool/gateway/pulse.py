"""Coarse time for the hot path: one timer for the whole gateway instead of one for each request.

Every beat the gateway refreshes the time and the `date` line here, and looks through its connections for those that
are overdue. Time-outs are therefore late by up to one beat, and never early by more than one.
"""

from email.utils import formatdate
from typing import Final

BEAT_NS: Final = 500_000_000
_NS_PER_S: Final = 1_000_000_000


class Pulse:
    """`now_ns` is monotonic, as of the last beat; `date` is the header line with its line end."""

    __slots__ = ("date", "now_ns")

    def __init__(self, monotonic_ns: int, wall_ns: int) -> None:
        self.beat(monotonic_ns, wall_ns)

    def beat(self, monotonic_ns: int, wall_ns: int) -> None:
        self.now_ns = monotonic_ns
        self.date = b"date: %b\r\n" % formatdate(wall_ns // _NS_PER_S, usegmt=True).encode()
