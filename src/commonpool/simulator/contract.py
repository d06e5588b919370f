"""What a simulation is made of beside its clock: who decides, who watches, and what only simulated policies may do."""

from collections.abc import Callable, Sequence
from typing import Protocol

from commonpool.core.effects import Effect
from commonpool.core.events import Event
from commonpool.core.model import Reason, UsageRecord
from commonpool.simulator.workload import Arrival

Progress = Callable[[int, int], None]


class SimulationError(Exception):
    """The simulation cannot go on: what, and why, in one sentence."""


class Preempt:
    """An effect that only simulated policies have: kill what runs. Its work is lost, and it waits to start again."""

    __slots__ = ("task_id",)

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id


class Decides(Protocol):
    """The production machine, or a policy around it."""

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        """Take in one event; return what must be done about it."""


class Observer(Protocol):
    """Is told what becomes of each arrival. Times are absolute nanoseconds."""

    def started(self, arrival: Arrival, now: int, wait_ns: int) -> None:
        """An attempt starts, `wait_ns` after the arrival."""

    def refused(self, arrival: Arrival, reason: Reason, now: int) -> None:
        """It will not run: at its arrival, or later where a promise could not be kept."""

    def ended(self, arrival: Arrival, record: UsageRecord, now: int) -> None:
        """Its last attempt ended; `record` is that attempt's."""

    def preempted(self, arrival: Arrival, now: int, lost_milli_gpu_ns: int) -> None:
        """An attempt was killed by the policy, with the work that it had done."""
