"""Nodes and devices, what moving work together would gain, and where something would go."""

from typing import Annotated

import msgspec

from commonpool.core.hints import Hint
from commonpool.core.model import Hardware
from commonpool.core.pictures import NodeView, PoolDevices


class Nodes(msgspec.Struct, frozen=True):
    """The nodes that are known and their devices; `pools` has every pool, with or without nodes."""

    pools: tuple[PoolDevices, ...]
    nodes: tuple[NodeView, ...]


class Hints(msgspec.Struct, frozen=True):
    """What could be gained by moving work together, the best of each pool first; nothing is moved."""

    hints: tuple[Hint, ...]


class PlaceQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where would it go: a job of `tenant` that asks for `hardware`, or one more replica of `model`.

    `expected_ns` is how long the job will take, where that is known.
    """

    tenant: str = ""
    model: str = ""
    hardware: Hardware | None = None
    expected_ns: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
