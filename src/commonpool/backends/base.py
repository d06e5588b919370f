"""Where replicas run: the contract of every backend. A backend starts, watches and stops; it decides nothing."""

from typing import Protocol

from commonpool.config.structs import Model
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


class Backend(Protocol):
    """A kind of place for replicas."""

    def check(self, model: Model) -> None:
        """Raise BackendError for what can be known before anything is started."""

    async def start(self, model: Model, index: int, replica_id: str) -> Handle:
        """Start the model's replica number `index` (from 0) as `replica_id`; it may not answer requests yet.

        Raises BackendError, and then nothing is left of it, nor when this is cancelled.
        """
