"""Replay a log of events from stdin and print the effects: `python -m tests.core.replay < log > effects`.

For a core in a process of its own, such as the compiled one. stderr names the file of the machine that ran.
"""

import sys

import msgspec

from commonpool.core import machine
from commonpool.core.events import Event
from commonpool.core.model import Policy


class Log(msgspec.Struct, frozen=True):
    """The policy a machine started with, and what happened to it when."""

    policy: Policy
    events: list[tuple[Event, int]]


def main() -> None:
    log = msgspec.json.decode(sys.stdin.buffer.read(), type=Log)
    replayed = machine.Machine(log.policy)
    for event, now in log.events:
        sys.stdout.buffer.write(msgspec.json.encode(replayed.handle(event, now)) + b"\n")
    sys.stderr.write(machine.__file__)


if __name__ == "__main__":
    main()
