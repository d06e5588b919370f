"""A machine under a load that never changes: every slot taken, so many queued, one arrives whenever one ends.

A pool of 128 GPUs that serves one model: 16 replicas of eight GPUs, each with a thousand slots, as an engine has on so
many. With fewer slots 10,000 tenants would have less than one each, and no tenant a guarantee of a whole request.
"""

from collections import deque

import msgspec

from commonpool.core.effects import Dispatch, Effect, Refuse
from commonpool.core.events import Arrived, Ended, ReplicaReady
from commonpool.core.machine import Machine
from commonpool.core.model import (
    NS_PER_S,
    Deployment,
    Limits,
    Outcome,
    Policy,
    Pool,
    Price,
    Replica,
    Request,
    Tenant,
    Tier,
    Usage,
)

REPLICAS = 16
REPLICA_MILLI_GPU = 8_000
CONTEXT = 4_000
TOKENS_IN = 200
TOKENS_OUT = 100
RUN_NS = NS_PER_S  # how long a request runs
MAX_WAIT_NS = 3_600 * NS_PER_S


class Size(msgspec.Struct, frozen=True):
    """How many tenants ask, how many requests wait, how many pairs are timed, and the slots of each replica.

    At least one request of each tenant fits its guarantee: smaller guarantees make every loan one of many crumbs.
    """

    tenants: int
    queued: int = 1_000_000
    pairs: int = 100_000
    slots: int = 1_000


class Load:
    """The machine, its clock, and what runs on it, oldest first."""

    def __init__(self, size: Size) -> None:
        self.machine = Machine(policy(size))
        self.running: deque[tuple[str, int]] = deque()
        self._now = NS_PER_S
        self._tenants = [f"busy-{n}" for n in range(size.tenants)]
        self._made = 0
        self._slots = REPLICAS * size.slots
        for n in range(REPLICAS):
            replica = Replica(f"m-{n}", "m", REPLICA_MILLI_GPU, size.slots, size.slots * CONTEXT)
            self._note(self.machine.handle(ReplicaReady(replica), self._now))

    def requests(self, count: int) -> list[Arrived]:
        """Of one tenant after the other; every third is interactive, the others are batch."""
        self._made += count
        return [Arrived(self._request(n)) for n in range(self._made - count, self._made)]

    def _request(self, n: int) -> Request:
        tenant = self._tenants[n % len(self._tenants)]
        tier = "batch" if n % 3 else "interactive"
        return Request(f"r-{n:032x}", tenant, "app", "m", tier, "chat", TOKENS_IN + n % 50, TOKENS_OUT)

    def fill(self) -> None:
        """Take every slot, then turn over what runs until the machine has learned how long that takes."""
        self.arrive(self.requests(self._slots))
        for _ in range(3):
            self.pairs(self.requests(self._slots))

    def arrive(self, events: list[Arrived]) -> None:
        """They arrive, and nothing ends: what no slot takes is queued."""
        for event in events:
            self._now += 1
            self._note(self.machine.handle(event, self._now))

    def pairs(self, events: list[Arrived]) -> None:
        """One arrives, and the oldest of those that run ends."""
        handle, running, note = self.machine.handle, self.running, self._note
        usage = Usage(TOKENS_IN, 0, TOKENS_OUT)
        for event in events:
            self._now += RUN_NS // self._slots
            note(handle(event, self._now))
            request_id, attempt = running.popleft()
            note(handle(Ended(request_id, attempt, Outcome.COMPLETED, usage, 200, self._now), self._now))

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            # isinstance takes long to say no of a struct, and what is measured is the core.
            if type(effect) is Dispatch:
                self.running.append((effect.request_id, effect.attempt))
            elif type(effect) is Refuse:
                raise SystemExit(f"The load must not be refused: {effect.message}")


def policy(size: Size) -> Policy:
    """Ten sixteenths of the pool are guaranteed to who asks, five to tenants that never do, and one to nobody."""
    capacity = REPLICAS * REPLICA_MILLI_GPU
    idle = max(1, size.tenants // 10)
    members = [_tenant(f"busy-{n}", capacity * 10 // 16 // size.tenants, size) for n in range(size.tenants)]
    members += [_tenant(f"idle-{n}", capacity * 5 // 16 // idle, size) for n in range(idle)]
    return Policy(
        pools={"main": Pool("main", capacity)},
        tiers={"interactive": Tier("interactive"), "batch": Tier("batch")},
        groups={},
        tenants={each.name: each for each in members},
        deployments={
            "m": Deployment("m", "1", "main", REPLICA_MILLI_GPU, size.slots, size.slots * CONTEXT, CONTEXT),
        },
        prices={"main": Price("main", 2_500_000)},
    )


def _tenant(name: str, guaranteed: int, size: Size) -> Tenant:
    cap = REPLICAS * REPLICA_MILLI_GPU
    limits = Limits(queue_length=2 * size.queued)
    priority = {"interactive": 9, "batch": 3}
    return Tenant(name, "main", guaranteed, cap, cap, priority, MAX_WAIT_NS, limits=limits)
