"""Where replicas run: the contract of every backend. A backend starts, watches and stops; it decides nothing."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from commonpool.config.structs import Model
from commonpool.core.model import Replica
from commonpool.engines.base import Target


class BackendError(Exception):
    """A replica cannot be started or reached: which, why, and what to do, in one sentence."""


class Handle(Protocol):
    """One replica that was started."""

    @property
    def target(self) -> Target:
        """How to reach it."""

    @property
    def pid(self) -> int | None:
        """Its process, where it has one on this machine."""

    async def wait(self) -> str:
        """Return when it has ended by itself, with a sentence that says how. Never returns where nothing can end."""

    async def stop(self, grace_ns: int) -> None:
        """End it, by force after `grace_ns`; when this returns nothing of it is left. May be called again."""


class Adopted(msgspec.Struct, frozen=True):
    """A replica that was started by an earlier run of the product and lives.

    `index` and `engine` are those that it was started with (`core.model.Deployment.engine`).
    """

    replica: Replica
    index: int
    engine: str
    handle: Handle


class Backend(Protocol):
    """A kind of place for replicas."""

    def check(self, model: Model) -> None:
        """Raise BackendError for what can be known before anything is started."""

    async def start(self, model: Model, index: int, replica: Replica) -> Handle:
        """Start the model's replica number `index` (from 0) on the devices of `replica`; it may not answer yet.

        Raises BackendError, and then nothing is left of it, nor when this is cancelled.
        """

    async def adopt(self) -> Sequence[Adopted]:
        """The replicas of an earlier run that still live, once; none where they end with the run."""
