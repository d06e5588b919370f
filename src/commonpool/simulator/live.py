"""What is under way in a simulation: the tasks that wait or run, and the replicas where requests run."""

import random

from commonpool.core.model import Job, Request, UsageRecord
from commonpool.simulator.cluster import Serving
from commonpool.simulator.replicas import Batch, Served
from commonpool.simulator.workload import Arrival


class Live(Served):
    """An arrival that waits or runs.

    `tokens_most` is the output of each sequence within the client's bound. `station` is where a request runs, None when
    it waits or has just ended.
    """

    __slots__ = ("arrival", "attempt", "job", "preempted", "record", "running", "station", "task_id", "tokens_most")

    def __init__(self, arrival: Arrival) -> None:
        task = arrival.task
        self.arrival = arrival
        self.task_id = task.id
        self.job = isinstance(task, Job)
        self.attempt = 0
        self.running = False
        self.preempted = False
        self.record: UsageRecord | None = None
        self.station: Station | None = None
        self.tokens_most = arrival.tokens_out
        sequences = 1
        if isinstance(task, Request):
            sequences = task.sequences
            if task.tokens_out_max is not None:
                self.tokens_most = min(self.tokens_most, task.tokens_out_max)
        super().__init__(arrival.tokens_in, self.tokens_most, sequences)


class Station(Batch):
    """A replica in the simulation. `wakes_at` is the time of its one valid event among the events, -1 for none.

    One that is `gone` does not come back, whatever events there are of it.
    """

    __slots__ = ("chance", "gone", "serving", "wakes_at")

    def __init__(self, serving: Serving, seed: int) -> None:
        super().__init__(serving.speed)
        self.serving = serving
        self.wakes_at = -1
        self.gone = False
        # Each replica draws from a source of its own: its failures do not depend on those of others.
        self.chance = random.Random(f"{seed}:{serving.replica.id}")  # noqa: S311 - not for secrets

    def drawn(self, mean_ns: int) -> int:
        """A time of an exponential law."""
        return int(self.chance.expovariate(1) * mean_ns) + 1
