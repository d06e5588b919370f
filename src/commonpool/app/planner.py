"""A process of its own that makes one plan: the configuration and the records come in, the plan goes out.

`advising` starts it, so that neither the event loop nor the interpreter's lock of the product is held for it. On
standard input come frames, each with its length before it: the sources, then batches of records. On standard output
goes one `Planned`.
"""

import os
import sys
from typing import BinaryIO, Final

import msgspec

from commonpool.api.wire.advice import Plan
from commonpool.config import ConfigError, Sources
from commonpool.config.requota import RequotaError
from commonpool.core.model import UsageRecord

LENGTH_BYTES: Final = 8
NICE: Final = 10  # whatever serves requests comes first


class Planned(msgspec.Struct, frozen=True):
    """A plan and the configuration that has it, or why there is none."""

    plan: Plan | None = None
    sources: Sources | None = None
    why: str = ""


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def read(file: BinaryIO) -> tuple[Sources, list[UsageRecord]]:
    """What was sent, to its end."""
    sources = msgspec.msgpack.decode(_next(file), type=Sources)
    batches = msgspec.msgpack.Decoder(list[UsageRecord])
    records: list[UsageRecord] = []
    while batch := _next(file):
        records += batches.decode(batch)
    return sources, records


def _next(file: BinaryIO) -> bytes:
    return file.read(int.from_bytes(file.read(LENGTH_BYTES), "big"))


def planned(sources: Sources, records: list[UsageRecord]) -> Planned:
    """The plan that these records make of this configuration."""
    from commonpool.app import past, planning  # noqa: PLC0415 - so that the product need not import the simulator
    from commonpool.simulator.contract import SimulationError  # noqa: PLC0415 - as above

    try:
        plan, changed = planning.plan(past.of_records(records, sources))
    except ConfigError as error:
        return Planned(why=f"the advised quotas contradict the configuration: {error}")
    except (SimulationError, RequotaError) as error:
        return Planned(why=str(error))
    return Planned(plan, changed)


def main() -> None:
    os.nice(NICE)
    sys.stdout.buffer.write(msgspec.json.encode(planned(*read(sys.stdin.buffer))))
