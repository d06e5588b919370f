"""Small simulations for the tests: a cluster for the policies of `tests.core.worlds`, workloads, and a witness."""

import random
from collections.abc import Sequence

import msgspec

from commonpool.core.effects import Dispatch, Effect
from commonpool.core.events import Ended, Event
from commonpool.core.model import Job, Policy, Reason, Replica, Request, UsageRecord
from commonpool.simulator.cluster import Cluster, Failures, Serving, Speed
from commonpool.simulator.run import Decides, Preempt
from commonpool.simulator.workload import Arrival, Workload, workload
from tests.core.worlds import CONTEXT, SLOTS, S, policy, tenant

MS = 1_000_000
SPEED = Speed(prefill_token_ns=MS // 10, step_ns=10 * MS, step_sequence_ns=MS, load_ns=30 * S)


def cluster(replicas: int = 1, failures: Failures | None = None, *, warm: bool = True) -> Cluster:
    shapes = [Replica(f"m-{n}", "m", 2000, SLOTS, SLOTS * CONTEXT) for n in range(replicas)]
    return Cluster(tuple(Serving(shape, SPEED, CONTEXT) for shape in shapes), failures, warm)


def request(name: str, at: int, tenant: str = "a", tokens_in: int = 100, tokens_out: int = 50) -> Arrival:
    return Arrival(at, Request(name, tenant, "app", "m", "interactive", "chat", tokens_in, 100), tokens_in, tokens_out)


def job(name: str, at: int, milli_gpu: int, duration_ns: int, tenant: str = "a") -> Arrival:
    return Arrival(at, Job(name, tenant, "app", "main", "batch", milli_gpu), duration_ns=duration_ns)


def crowd(seed: int, count: int, tenants: Sequence[str], gap_ns: int) -> Workload:
    """Requests of some tenants in turn by chance, `gap_ns` apart on average."""
    chance = random.Random(seed)
    at, arrivals = S, []
    for n in range(count):
        at += int(chance.expovariate(1) * gap_ns)
        arrivals.append(request(f"r{n}", at, chance.choice(tenants), chance.randint(1, 300), chance.randint(1, 120)))
    return workload("crowd", arrivals)


class Witness:
    """Remembers what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int, object]] = []
        self.records: dict[str, UsageRecord] = {}

    def started(self, arrival: Arrival, now: int, wait_ns: int) -> None:
        self.told.append(("started", arrival.task.id, now, wait_ns))

    def refused(self, arrival: Arrival, reason: Reason, now: int) -> None:
        self.told.append(("refused", arrival.task.id, now, reason))

    def ended(self, arrival: Arrival, record: UsageRecord, now: int) -> None:
        self.records[arrival.task.id] = record
        self.told.append(("ended", arrival.task.id, now, record.outcome))

    def preempted(self, arrival: Arrival, now: int, lost_milli_gpu_ns: int) -> None:
        self.told.append(("preempted", arrival.task.id, now, lost_milli_gpu_ns))

    def of(self, what: str) -> list[str]:
        return [name for told, name, _, _ in self.told if told == what]

    def bytes(self) -> bytes:
        return msgspec.json.encode((self.told, self.records))


class Watched:
    """A machine, watched: slots taken on each replica, and the order of time."""

    def __init__(self, machine: Decides) -> None:
        self._machine = machine
        self._at: dict[str, str] = {}
        self.taken: dict[str, int] = {}
        self.most_taken = 0
        self.events: list[tuple[int, Event]] = []

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        assert not self.events or self.events[-1][0] <= now
        self.events.append((now, event))
        if isinstance(event, Ended):
            self.taken[self._at.pop(event.request_id)] -= 1
        effects = self._machine.handle(event, now)
        for effect in effects:
            if isinstance(effect, Dispatch):
                self._at[effect.request_id] = effect.replica_id
                self.taken[effect.replica_id] = self.taken.get(effect.replica_id, 0) + 1
                self.most_taken = max(self.most_taken, self.taken[effect.replica_id])
        return effects

    def kinds(self) -> list[str]:
        return [type(event).__name__ for _, event in self.events]


def two_tenants() -> Policy:
    return policy(tenant("a", 2000), tenant("b", 2000), milli_gpu=4000)
