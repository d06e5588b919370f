"""A log of every event and what the machine made of it, and its replay: the same decisions, byte for byte.

The first line is the policy, each other one `[now, event, effects]`, all JSON.
"""

from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from commonpool.core.effects import Effect
from commonpool.core.events import Event
from commonpool.core.machine import Machine
from commonpool.core.model import Policy


class ReplayError(Exception):
    """The log cannot be read, or the machine decides otherwise than it did: which line, and what differs."""


class Recorder:
    """A machine that writes down what it is told and what it answers."""

    def __init__(self, policy: Policy, log: BinaryIO) -> None:
        self._machine = Machine(policy)
        self._encoder = msgspec.json.Encoder()
        self._log = log
        self._write(policy)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """As the machine's."""
        effects = self._machine.handle(event, now)
        self._write((now, event, effects))
        return effects

    def _write(self, line: object) -> None:
        self._log.write(self._encoder.encode(line) + b"\n")


def replay(log: Iterable[bytes]) -> int:
    """Tell a new machine the events of a log; return how many there were.

    Raises ReplayError at the first line that cannot be read, or where an effect differs by a single byte.
    """
    lines = iter(log)
    encoder = msgspec.json.Encoder()
    decoder = msgspec.json.Decoder(tuple[int, Event, msgspec.Raw])
    number = 1
    try:
        machine = Machine(msgspec.json.decode(next(lines, b""), type=Policy))
        for line in lines:
            number += 1
            now, event, recorded = decoder.decode(line)
            effects = encoder.encode(machine.handle(event, now))
            if effects != bytes(recorded):
                raise ReplayError(
                    f"line {number}: at {now} the machine answers {effects.decode()}; it answered "
                    f"{bytes(recorded).decode()}"
                )
    except msgspec.DecodeError as error:
        raise ReplayError(f"line {number} is not one of a recording: {error}") from error
    return number - 1
