"""The product at one moment: pools, tenants, loans, models and replicas; whether it lives and can serve."""

import msgspec

from commonpool.core.pictures import PoolDevices, ResourceUse, TenantJobs
from commonpool.core.said import Said


class Health(msgspec.Struct, frozen=True):
    """Whether the product lives (`/healthz`) or can serve (`/readyz`); `message` says what is missing."""

    ok: bool
    message: str


class PoolStatus(msgspec.Struct, frozen=True):
    """A pool now. `unowned_milli_gpu` is what no tenant has a guarantee for.

    `scaled` says that the guarantees exceed the capacity, so that each is cut pro rata.
    """

    name: str
    rule: str
    capacity_milli_gpu: int
    used_milli_gpu: int
    unowned_milli_gpu: int
    scaled: bool


class BudgetStatus(msgspec.Struct, frozen=True):
    """What a tenant has spent of its budget for this month, and what more is held for what is open.

    `soft`: so much is spent that a warning says so. `until_ns` is when the month ends; 0 while that is not known.
    """

    month_micro: int
    spent_micro: int
    held_micro: int
    soft: bool
    until_ns: int
    currency: str


class TenantStatus(msgspec.Struct, frozen=True):
    """A tenant now. `due_milli_gpu` is the part of what it lent that it needs back.

    `granted_until_ns` is when the grant ends that `elastic_cap_milli_gpu` comes from, None where it is as configured.
    Waits are over the last ten minutes, within 1 %, None where nothing was dispatched. `budget` is None where there is
    none.
    """

    name: str
    pool: str
    guaranteed_milli_gpu: int
    elastic_cap_milli_gpu: int
    in_use_milli_gpu: int
    lent_milli_gpu: int
    borrowed_milli_gpu: int
    due_milli_gpu: int
    waiting: int
    running: int
    wait_ns_p50: int | None
    wait_ns_p99: int | None
    granted_until_ns: int | None = None
    budget: BudgetStatus | None = None


class LoanStatus(msgspec.Struct, frozen=True):
    """What one tenant holds of another's guarantee now, and since when; lender "" is the pool's unowned part.

    Requests borrow one after another: `start_ns_min` is when that began, without a break of five seconds since.
    `requests` and `jobs` run on it. `due` says that the lender has work waiting: the next that frees goes back to it.
    `return_ns` is when the last of it is expected back, null where that is not known of all of it, or is over already.
    """

    lender: str
    borrower: str
    milli_gpu: int
    requests: int
    start_ns_min: int
    due: bool
    jobs: int = 0
    return_ns: int | None = None


class OpenLoans(msgspec.Struct, frozen=True):
    """The loans that are open now, by lender and borrower."""

    loans: tuple[LoanStatus, ...]


class EngineStatus(msgspec.Struct, frozen=True):
    """What an engine said of itself at `at_ns`: sequences that run and wait in it, its KV cache's use in thousandths.

    null is not known, also of what it said too long ago. `foreign` of its sequences were not sent from here, where that
    is clear.
    """

    at_ns: int
    running: int | None = None
    waiting: int | None = None
    kv_milli: int | None = None
    foreign: int = 0


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A replica now. `state` is starting, ready, failing (its circuit is open), unknown, draining or stopping.

    `node` and `devices` are where it runs, where its pool's nodes are known. `running` is what was sent to it, by our
    own count; `engine` is what the engine says, null where it never said anything.
    """

    id: str
    model: str
    state: str
    since_ns: int
    running: int
    slots: int
    milli_gpu: int
    node: str = ""
    devices: tuple[str, ...] = ()
    address: str | None = None
    pid: int | None = None
    engine: EngineStatus | None = None


class ModelStatus(msgspec.Struct, frozen=True):
    """A model now: how many replicas it should have (`wanted`) and `why`, how many there are, what waits and for what.

    `bottleneck` is none, gpu, kv_memory, cpu, memory, network, start_up or quota. `broken`: no replica could be started
    several times in a row; `error` is why, and `unplaced` why another one finds no place ("" otherwise).
    """

    name: str
    pool: str
    residency: str
    wanted: int
    why: str
    ready: int
    starting: int
    draining: int
    waiting: int
    bottleneck: str
    broken: bool
    error: str
    unplaced: str


class Replicas(msgspec.Struct, frozen=True):
    """All replicas."""

    replicas: tuple[ReplicaStatus, ...]


class Status(msgspec.Struct, frozen=True):
    """The whole product at one moment. `warnings` are sentences for the operator; none is good.

    `said` has by sentence those of them that have a name.
    `jobs` and `resources` are of those that have or use some. `gateway` is where the data plane listens.
    The p50 and p99 of tenants' waits are of what has ended since `waits_since_ns`.
    """

    version: str
    revision: int
    started_ns: int
    now_ns: int
    ready: bool
    pools: tuple[PoolStatus, ...]
    tenants: tuple[TenantStatus, ...]
    replicas: tuple[ReplicaStatus, ...]
    models: tuple[ModelStatus, ...] = ()
    loans: tuple[LoanStatus, ...] = ()
    warnings: tuple[str, ...] = ()
    devices: tuple[PoolDevices, ...] = ()
    jobs: tuple[TenantJobs, ...] = ()
    resources: tuple[ResourceUse, ...] = ()
    gateway: str = ""
    said: dict[str, Said] = {}
    waits_since_ns: int | None = None
