"""The replicas of a simulation over time: how many, when each was started and stopped, and what they held."""

from collections.abc import Sequence

from commonpool.core.effects import Effect, StartReplica, StopReplica
from commonpool.core.events import Event, ReplicaLost, ReplicaReady
from commonpool.core.model import Replica
from commonpool.simulator.contract import Decides, Preempt


class Life:
    """One replica. Absolute times, -1: not yet. One that was there from the beginning `started` when it was ready."""

    __slots__ = ("ended", "ready", "replica", "started", "stopped")

    def __init__(self, replica: Replica, started: int) -> None:
        self.replica = replica
        self.started = started
        self.ready = -1
        self.stopped = -1  # when the machine had it stopped; one that broke was not
        self.ended = -1


class Fleet:
    """Decides as `decides` does, and remembers the life of every replica, in the order of their starts."""

    def __init__(self, decides: Decides) -> None:
        self._decides = decides
        self._now: dict[str, Life] = {}
        self.lives: list[Life] = []

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        """As what is watched does."""
        if isinstance(event, ReplicaReady):
            life = self._now.get(event.replica.id) or self._begin(event.replica, now)
            life.ready = now
        elif isinstance(event, ReplicaLost):
            life = self._now.pop(event.replica_id)
            life.ended = now
        effects = self._decides.handle(event, now)
        for effect in effects:
            if isinstance(effect, StartReplica):
                self._begin(effect.replica, now)
            elif isinstance(effect, StopReplica):
                self._now[effect.replica_id].stopped = now
        return effects

    def _begin(self, replica: Replica, now: int) -> Life:
        life = self._now[replica.id] = Life(replica, now)
        self.lives.append(life)
        return life

    def finish(self, now: int) -> None:
        """The simulation is over; what there is ends with it."""
        for life in self._now.values():
            life.ended = now
        self._now.clear()

    def held_milli_gpu_ns(self, start: int, end: int) -> int:
        """What all replicas held of the GPUs in a time, from their starts to their ends."""
        held = 0
        for life in self.lives:
            held += life.replica.milli_gpu * max(0, min(end, life.ended) - max(start, life.started))
        return held

    def changes(self) -> list[tuple[int, int]]:
        """(when, how many there are from then on), of those that start or run, in order of time."""
        steps: dict[int, int] = {}
        for life in self.lives:
            steps[life.started] = steps.get(life.started, 0) + 1
            steps[life.ended] = steps.get(life.ended, 0) - 1
        changes, count = [], 0
        for at in sorted(steps):
            count += steps[at]
            changes.append((at, count))
        return changes

    def most(self) -> int:
        """The largest number of replicas at one time."""
        return max((count for _, count in self.changes()), default=0)

    def short_lives(self, load_ns: int) -> list[Life]:
        """Those that were stopped before they had been up for as long as they took to start: what oscillates."""
        return [life for life in self.lives if life.stopped >= 0 and life.stopped - life.started < 2 * load_ns]
