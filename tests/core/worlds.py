"""Small worlds for the tests of the core: policies, replicas, and a driver that reads like a transcript."""

import heapq
from typing import Any

from commonpool.core.effects import Dispatch, Effect, Fail, Refuse, Settle, Start
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    Ended,
    Event,
    JobEnded,
    ReplicaReady,
    Submitted,
    Ticked,
)
from commonpool.core.machine import Machine
from commonpool.core.model import (
    Deployment,
    Group,
    Job,
    Outcome,
    Policy,
    Pool,
    Price,
    Replica,
    Request,
    Tenant,
    Tier,
    Usage,
    UsageRecord,
)

S = 1_000_000_000
SLOTS = 4
CONTEXT = 1000


def tenant(name: str, guaranteed: int = 0, **more: Any) -> Tenant:
    cap = more.pop("elastic_cap", 4000)
    fields: dict[str, Any] = {
        "name": name,
        "pool": "main",
        "guaranteed": guaranteed,
        "elastic_cap": cap,
        "hard_cap": cap,
        "priority": {"interactive": 9, "batch": 3},
        "max_wait_ns": 120 * S,
    }
    return Tenant(**(fields | more))


def policy(*tenants: Tenant, milli_gpu: int = 4000, groups: tuple[Group, ...] = (), **more: Any) -> Policy:
    """One pool `main`, one model `m` whose replicas have 4 slots on 2 GPUs: a request uses 500 milli_gpu."""
    return Policy(
        pools={"main": Pool("main", milli_gpu, more.pop("rule", "elastic"), more.pop("resources", {}))},
        tiers={"interactive": Tier("interactive"), "batch": Tier("batch")},
        groups={g.name: g for g in groups},
        tenants={t.name: t for t in tenants},
        deployments=more.pop("deployments", {"m": Deployment("m", "1", "main", 2000, SLOTS, SLOTS * CONTEXT, CONTEXT)}),
        prices={"main": Price("main", 2_500_000)},
    )


class World:
    """A machine with its clock. Methods send one event and return what came of it."""

    def __init__(self, rules: Policy, replicas: int = 1) -> None:
        self.machine = Machine(rules)
        self.now = 0
        self.log: list[tuple[Event, int]] = []
        self.effects: list[Effect] = []
        self.records: list[UsageRecord] = []
        self.attempts: dict[str, int] = {}
        self.running: list[str] = []
        for n in range(replicas):
            self.ready(f"m-{n}")

    def send(self, event: Event) -> list[Effect]:
        self.log.append((event, self.now))
        effects = self.machine.handle(event, self.now)
        self.effects += effects
        for effect in effects:
            match effect:
                case Dispatch(request_id, attempt) | Start(request_id, attempt):
                    self.attempts[request_id] = attempt
                    self.running.append(request_id)
                case Settle(record):
                    self.records.append(record)
                case Refuse() | Fail():
                    pass
        return effects

    def ready(self, replica_id: str, model: str = "m", slots: int = SLOTS) -> list[Effect]:
        return self.send(ReplicaReady(Replica(replica_id, model, 2000, slots, slots * CONTEXT)))

    def arrive(self, request_id: str, tenant_name: str, tier: str = "interactive", **more: Any) -> list[Effect]:
        fields: dict[str, Any] = {"app": "app", "model": "m", "endpoint": "chat", "tokens_in": 10, "tokens_out_max": 10}
        return self.send(Arrived(Request(id=request_id, tenant=tenant_name, tier=tier, **(fields | more))))

    def end(self, request_id: str, outcome: Outcome = Outcome.COMPLETED, **more: Any) -> list[Effect]:
        usage = more.pop("usage", Usage(10, 0, 10))
        if request_id in self.running:
            self.running.remove(request_id)
        return self.send(Ended(request_id, self.attempts.get(request_id, 1), outcome, usage, **more))

    def submit(self, job_id: str, tenant_name: str, milli_gpu: int, tier: str = "batch", **more: Any) -> list[Effect]:
        return self.send(Submitted(Job(job_id, tenant_name, "app", "main", tier, milli_gpu, **more)))

    def finish(self, job_id: str, outcome: Outcome = Outcome.COMPLETED, **more: Any) -> list[Effect]:
        if job_id in self.running:
            self.running.remove(job_id)
        return self.send(JobEnded(job_id, self.attempts.get(job_id, 1), outcome, **more))

    def cancel(self, request_id: str) -> list[Effect]:
        return self.send(Cancelled(request_id))

    def configure(self, rules: Policy) -> list[Effect]:
        return self.send(Configured(rules))

    def tick(self) -> list[Effect]:
        return self.send(Ticked())

    def later(self, seconds: float) -> "World":
        self.now += int(seconds * S)
        return self


class Paced(World):
    """A world in which what runs ends by itself: a request after its service at a constant pace, a job after its time.

    `out` is what each request produces, `lasts` how long each job takes, `fates` how those end that do not complete.
    A tick comes every second. `began` are the times at which each was started last.
    """

    def __init__(self, rules: Policy, replicas: int = 1, ns_per_token: int = S // 100) -> None:
        self.ns_per_token = ns_per_token
        self.out: dict[str, int] = {}
        self.lasts: dict[str, int] = {}
        self.fates: dict[str, tuple[Outcome, bool]] = {}
        self.began: dict[str, int] = {}
        self.tokens_in: dict[str, int] = {}
        self._due: list[tuple[int, int, str]] = []
        self._ticked = 0
        super().__init__(rules, replicas)

    def send(self, event: Event) -> list[Effect]:
        if isinstance(event, Arrived):
            self.tokens_in[event.request.id] = event.request.tokens_in
        effects = super().send(event)
        for effect in effects:
            if isinstance(effect, Dispatch | Start):
                name = effect.request_id if isinstance(effect, Dispatch) else effect.job_id
                self.began[name] = self.now
                heapq.heappush(self._due, (self.now + self.length(name), len(self.log), name))
        return effects

    def length(self, name: str) -> int:
        """How long a request or job takes."""
        if name in self.lasts:
            return self.lasts[name]
        return (self.tokens_in[name] + 2 * self.out[name]) * self.ns_per_token

    def until(self, time: int) -> None:
        """Let time pass: what is due ends, in order, and every second ticks."""
        while True:
            due = self._due[0][0] if self._due else time + 1
            tick = self._ticked + S
            if min(due, tick) > time:
                break
            self.now = min(due, tick)
            if tick <= due:
                self._ticked = tick
                self.tick()
            else:
                self.ends(heapq.heappop(self._due)[2])
        self.now = time

    def ends(self, name: str) -> None:
        outcome, retry = self.fates.pop(name, (Outcome.COMPLETED, False))
        if name in self.lasts:
            self.finish(name, outcome, retry=retry)
        else:
            self.end(name, outcome, usage=Usage(self.tokens_in[name], 0, self.out[name]), retry=retry)


def dispatched(effects: list[Effect]) -> list[str]:
    return [effect.request_id for effect in effects if isinstance(effect, Dispatch)]


def started(effects: list[Effect]) -> list[str]:
    return [effect.job_id for effect in effects if isinstance(effect, Start)]


def refused(effects: list[Effect]) -> list[Refuse]:
    return [effect for effect in effects if isinstance(effect, Refuse)]
