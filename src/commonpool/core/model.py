"""The vocabulary of the core: what is shared, by whom, and what is asked of it.

Units, everywhere: time is integer nanoseconds, GPU integer thousandths (`milli_gpu`), memory MiB, tokens integers.
Every struct is frozen: a changed configuration is a new `Policy`.
"""

import enum
from typing import Literal

import msgspec

NS_PER_S = 1_000_000_000
NS_PER_HOUR = 3600 * NS_PER_S
PRIORITY_MAX = 9
STOPPED = "stopped"  # the reason of a record whose attempt ended with the product
RECALLED = "response_cache"  # that of a request which was answered with what its tenant was answered before
UNPRICED = -1  # stands for a price where none is in force; what is to be charged at it is refused (`UnknownPriceError`)

PoolRule = Literal["elastic", "guaranteed", "dedicated"]
ReclaimPolicy = Literal["borrow_not_preempt", "checkpoint"]
ReturnWhen = Literal["task_done"]
Endpoint = Literal["chat", "completions", "embeddings", "batch"]
LATER: Literal["batch"] = "batch"  # the endpoint of what was asked of another one, and was taken to be answered later
Resource = Literal["gpu_memory_mib", "cpu_milli", "memory_mib"]  # beside milli_gpu, which every task asks for
JobKind = Literal["job", "replica"]
Isolation = Literal["shared", "guaranteed", "node", "network"]  # weakest first
Together = Literal["node", "island", "any"]
Residency = Literal["resident", "on_demand", "standby", "async"]

MILLI_PER_GPU = 1000


class Pool(msgspec.Struct, frozen=True):
    """A set of devices with one sharing rule.

    elastic: idle guarantees are lent. guaranteed: nobody uses more than its guarantee. dedicated: one tenant owns it.
    `resources` is what there is of the other resources; one that is not named is not counted. `isolation` is what
    keeps its tenants apart. shared: they may share a device. guaranteed: a device serves one tenant at a time. node: a
    node does. network: and that node is in a network of its own. `placed`: its GPUs lie on nodes that are known, and
    nothing starts before they were seen.
    """

    name: str
    milli_gpu: int
    rule: PoolRule = "elastic"
    resources: dict[Resource, int] = {}
    isolation: Isolation = "shared"
    placed: bool = False


class Device(msgspec.Struct, frozen=True):
    """One GPU, or one MIG slice of a GPU, which is a device of its own.

    `id` is unique among all nodes: `<node>/<index>`, of a slice `<node>/<index>.<slice>`. `milli_gpu` is 1000, of a
    slice its compute part, rounded down; `profile` is a slice's. `memory_mib` 0: not known, not counted;
    `taken_mib` is what is used on it by what is not ours. Devices of one `island` are linked (NVLink); "" is none.
    """

    id: str
    model: str = ""
    memory_mib: int = 0
    milli_gpu: int = MILLI_PER_GPU
    profile: str = ""
    island: str = ""
    taken_mib: int = 0
    healthy: bool = True


class Window(msgspec.Struct, frozen=True):
    """A maintenance window, nanoseconds since the epoch, the end excluded: nothing may run on its node then."""

    start_ns: int
    end_ns: int


class Node(msgspec.Struct, frozen=True):
    """A machine of a pool. 0 cpu_milli or memory_mib: not known, not counted.

    `isolation` is the strictest level that it can give. `runtimes` are what work may ask for by name ("cuda-12.4").
    """

    name: str
    pool: str
    devices: tuple[Device, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    isolation: Isolation = "node"
    runtimes: tuple[str, ...] = ()
    driver: str = ""
    windows: tuple[Window, ...] = ()


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What work asks for of the GPUs, as people say it. `core.footprint` is the one place that converts it.

    `milli_gpu` in all: whole GPUs from 1000 up, a part of one below. `memory_mib` on each device. `profile` a MIG
    profile; `count` how many devices where it is asked by profile or by memory alone. `together`: several devices are
    on one node, linked with each other (island), or anywhere. `models`: GPU models that will do; none named: all.
    """

    milli_gpu: int = 0
    memory_mib: int = 0
    profile: str = ""
    count: int = 1
    together: Together = "node"
    models: tuple[str, ...] = ()
    runtime: str = ""


class Tier(msgspec.Struct, frozen=True):
    """A service tier: what a request of this class is promised. Targets are nanoseconds; None promises nothing."""

    name: str
    queue_target_ns: int | None = None
    first_token_target_ns: int | None = None


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Limits of a tenant, an app or a key; all that apply hold at once. None is no limit.

    `concurrent_requests` holds back in the queue, and `tokens_out_max` and `run_ns_max` end what runs; the others
    refuse. `bytes_per_second` bounds the bodies of requests and answers together. `tokens_in_max` and `tokens_out_max`
    are those of one request, all its sequences together. `milli_gpu`, `cpu_milli` and `memory_mib` are what the jobs of
    an app may hold at once; more wait. (A tenant has quotas for that, and no job is of a key.)
    """

    concurrent_requests: int | None = None
    queue_length: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    bytes_per_second: int | None = None
    tokens_in_max: int | None = None
    tokens_out_max: int | None = None
    run_ns_max: int | None = None
    milli_gpu: int | None = None
    cpu_milli: int | None = None
    memory_mib: int | None = None


NO_LIMITS = Limits()


class Group(msgspec.Struct, frozen=True):
    """An inner node of the quota tree (a division); its figures are about the sum of what is below it, in milli_gpu.

    `elastic_cap` bounds it (None: no bound). `guaranteed` is at least what is guaranteed below it, which is also its
    default (None); what is more belongs to the group: its members use it before anyone else may. `reserved` is the part
    of the guarantee that is never lent out of the group.
    """

    name: str
    parent: str | None = None
    elastic_cap: int | None = None
    guaranteed: int | None = None
    reserved: int = 0


class Share(msgspec.Struct, frozen=True):
    """A tenant's part of one of its pool's other resources, in that resource's unit. Cap None: no bound."""

    guaranteed: int
    elastic_cap: int | None = None


class Budget(msgspec.Struct, frozen=True):
    """What a tenant may spend in a billing period, in micro-units; from `soft_percent` of it on a warning says so."""

    micro: int
    soft_percent: int = 80


class Tenant(msgspec.Struct, frozen=True):
    """Who gets quota and a bill; a leaf of the quota tree. Quantities in milli_gpu.

    0 <= reserved <= guaranteed <= elastic_cap <= hard_cap. `priority` maps each tier the tenant may use to its
    priority inside the tenant, 0 to 9, larger first. `models` are those it may use; None is all. `headroom` is how much
    of the guarantee stays unlent beyond what is in use, for instant starts. `resources` are its parts of its pool's
    other resources; of one that is not named it has the same fraction as of the GPUs, without a cap. `apps` are the
    limits of those of its apps that have some. `fallback`: whether a model's fallback may answer its requests.
    """

    name: str
    pool: str
    guaranteed: int
    elastic_cap: int
    hard_cap: int
    priority: dict[str, int]
    max_wait_ns: int
    reserved: int = 0
    weight: int = 1
    group: str | None = None
    models: tuple[str, ...] | None = None
    reclaim: ReclaimPolicy = "borrow_not_preempt"
    return_when: ReturnWhen = "task_done"
    limits: Limits = Limits(queue_length=1000)
    headroom: int = 0
    resources: dict[Resource, Share] = {}
    budget: Budget | None = None
    apps: dict[str, Limits] = {}
    fallback: bool = True


class Scaling(msgspec.Struct, frozen=True):
    """How many replicas a deployment has. Nanoseconds.

    resident: always at least `replicas_min`. on_demand: none while nobody asks, after `idle_ns`; the first request
    starts one. standby: like resident, but it makes room when somebody needs its guarantee back. async: none until so
    much waits that a start is worth it, or the longest wait is half over. What waits for a first replica waits for
    `start_deadline_ns` at most.
    """

    replicas_min: int = 1
    replicas_max: int = 1
    residency: Residency = "resident"
    idle_ns: int = 300 * NS_PER_S
    start_deadline_ns: int = 120 * NS_PER_S


class Attached(msgspec.Struct, frozen=True):
    """An engine that runs elsewhere already: where (its URL), and which devices it has, where their nodes are known."""

    url: str
    devices: tuple[str, ...] = ()


class Deployment(msgspec.Struct, frozen=True):
    """A model version and the shape of each of its replicas.

    A replica holds `milli_gpu`, runs `slots` sequences at once and keeps `kv_tokens` in all; `context_tokens` bounds
    prompt plus output of one sequence. `hardware` says more of what it holds, where the pool's nodes are known.
    `scaling` None: replicas come and go without the core's doing. `fallback` is the model that answers when this one
    cannot. A changed `engine`, a fingerprint of what is started, makes all its replicas new ones. Where there are
    `attached` engines the replicas are just those, whatever `scaling` says.
    """

    model: str
    version: str
    pool: str
    milli_gpu: int
    slots: int
    kv_tokens: int
    context_tokens: int
    hardware: Hardware | None = None
    scaling: Scaling | None = None
    fallback: str | None = None
    engine: str = ""
    attached: tuple[Attached, ...] = ()


class Replica(msgspec.Struct, frozen=True):
    """One running engine instance of a model, in the shape of its deployment."""

    id: str
    model: str
    milli_gpu: int
    slots: int
    kv_tokens: int
    node: str = ""
    devices: tuple[str, ...] = ()


class Price(msgspec.Struct, frozen=True):
    """Micro-units of the billing currency for one hour of one whole GPU of a pool.

    `later` are the prices that follow the first, each with when it comes into force (nanoseconds since the epoch),
    ascending. The first is UNPRICED where the list begins with a date.
    """

    pool: str
    micro_per_gpu_hour: int
    later: tuple[tuple[int, int], ...] = ()

    def at(self, now_ns: int) -> int:
        """The price in force; UNPRICED before there is one."""
        price = self.micro_per_gpu_hour
        for from_ns, micro in self.later:
            if now_ns < from_ns:
                break
            price = micro
        return price


class Lending(msgspec.Struct, frozen=True):
    """What a borrower pays the lender: so many thousandths of the pool's price.

    `hours` are those of the day with a rate of their own: from the local hour, until the local hour (0 to 24; past
    midnight where it is the smaller one), thousandths. The first that fits counts.
    """

    pool: str
    permille: int = 1000
    hours: tuple[tuple[int, int, int], ...] = ()

    def micro(self, price: int, local_hour: int) -> int:
        """Micro-units for a lent GPU-hour in this hour of the day, at this price of the pool; rounded half up."""
        if price == UNPRICED:
            return UNPRICED
        permille = self.permille
        for start, end, rate in self.hours:
            if start <= local_hour < end or (end < start and not end <= local_hour < start):
                permille = rate
                break
        return (2 * price * permille + 1000) // 2000


class Policy(msgspec.Struct, frozen=True):
    """Everything the machine decides by. Keys are names. `revision` grows by one with each applied change.

    The hours of the books begin `hour_offset_ns` after full hours UTC, so that they begin at full hours of the billing
    time zone.
    """

    pools: dict[str, Pool]
    tiers: dict[str, Tier]
    groups: dict[str, Group]
    tenants: dict[str, Tenant]
    deployments: dict[str, Deployment]
    prices: dict[str, Price]
    revision: int = 1
    hour_offset_ns: int = 0

    def models_of(self, tenant: Tenant) -> list[str]:
        """Names of the models that a tenant may use: those of its pool, narrowed by its own list."""
        return [
            name
            for name, deployment in self.deployments.items()
            if deployment.pool == tenant.pool and (tenant.models is None or name in tenant.models)
        ]


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request as the core sees it: who, what, and how much of a replica it will take.

    `tokens_in` is the prompt's length in tokens, estimated before dispatch; `tokens_out_max` is the client's own bound
    on the output of one sequence, None when it set none; `sequences` is how many the engine runs at once (`n`, or the
    number of prompts). `bytes_in` is the size of its body. `key` is the id of the key that it came with, "" for none.
    `fallback`: whether its model's fallback may answer it. `later`: where its max_wait cannot be kept, whoever asks
    keeps it and comes again. What comes again so has the endpoint batch: it waits behind all else of its tenant, it is
    promised nothing, and nobody is refused because it waits.
    """

    id: str
    tenant: str
    app: str
    model: str
    tier: str
    endpoint: Endpoint
    tokens_in: int
    tokens_out_max: int | None = None
    sequences: int = 1
    stream: bool = False
    cost_center: str = ""
    bytes_in: int = 0
    key: str = ""
    fallback: bool = True
    later: bool = False


class Job(msgspec.Struct, frozen=True):
    """A long task that holds whole or part GPUs of a pool until it ends: training, evaluation, a batch.

    kind "replica" is an engine instance of the tenant's own: quota and loans treat it as any other job. `expected_ns`
    is how long it will take, where that is known: what it may borrow depends on when its lenders will want it back.
    `hardware` says more of what it asks for, where the pool's nodes are known; `milli_gpu` may then be 0. reclaim
    checkpoint: when a lender needs back what it borrows, it is asked to save its state and to wait again.
    """

    id: str
    tenant: str
    app: str
    pool: str
    tier: str
    milli_gpu: int
    resources: dict[Resource, int] = {}
    kind: JobKind = "job"
    expected_ns: int | None = None
    cost_center: str = ""
    hardware: Hardware | None = None
    reclaim: ReclaimPolicy = "borrow_not_preempt"


class Outcome(enum.StrEnum):
    """How an attempt at a request ended. Metrics and records use these words and no others but `running`."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"  # the client went away
    FAILED = "failed"  # the engine failed, or answered with an error
    REFUSED = "refused"  # never dispatched
    RUNNING = "running"  # it has not ended: in notes alone, never in a record


class Fault(enum.StrEnum):
    """Whose fault it is that an attempt failed."""

    ENGINE = "engine"  # it could not be reached, broke off, fell silent, or what it sent is no answer
    UNCLEAR = "unclear"  # it answered with an error of its own (5xx), which the request may have caused
    NONE = "none"  # neither: the request was wrong (4xx), or the product stops


class TokenSource(enum.StrEnum):
    """Where a record's token counts come from, best first."""

    ENGINE = "engine"  # the engine's own usage
    COUNTED = "counted"  # chunks seen in a stream that was cut
    ESTIMATED = "estimated"  # neither was to be had


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one attempt. `tokens_cached` is a part of `tokens_in`, never added to it. Zero means zero."""

    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    source: TokenSource = TokenSource.ENGINE


class Reason(enum.StrEnum):
    """Why a request was refused."""

    NEVER_FITS = "never_fits"
    QUEUE_FULL = "queue_full"
    PROMISE = "promise"
    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    BYTES_PER_SECOND = "bytes_per_second"
    CONCURRENCY = "concurrency"
    INPUT = "input"
    OUTPUT = "output"
    RUN_TIME = "run_time"  # of what was ended, and not refused
    KEY_REVOKED = "key_revoked"
    BUDGET = "budget"
    NO_REPLICA = "no_replica"
    NO_JOURNAL = "no_journal"  # usage cannot be written, and unmetered work does not exist
    UNKNOWN_TENANT = "unknown_tenant"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_TIER = "unknown_tier"


class Cause(enum.StrEnum):
    """Why something waits. `core.explain` has the sentences; `Wait.name` says whom or what it is about."""

    OWN_QUEUE = "own_queue"  # behind others of its tenant
    NO_REPLICA = "no_replica"  # name: the model
    SLOTS = "slots"  # name: the model; every slot, or its KV memory, is taken
    DEVICES = "devices"  # name: the pool; not enough GPUs are free on its devices
    TURN = "turn"  # others come first by the order between tenants
    CONCURRENCY = "concurrency"  # name: the tenant, app or key that is at its concurrent_requests
    APP_LIMIT = "app_limit"  # name: the app whose jobs hold as much as they may
    ELASTIC_CAP = "elastic_cap"  # name: the tenant or group that is at its cap
    LOAN_DUE = "loan_due"  # name: who borrowed the guarantee that it needs back
    POOL_FULL = "pool_full"  # its tenant is at its guarantee, and nothing is left to borrow
    BORROWING_DENIED = "borrowing_denied"  # at its guarantee, and `name` waits for its own
    KEPT = "kept"  # taken for later, and not yet in its tenant's queue
    FORECAST = "forecast"  # at its guarantee, and what is idle will be wanted back too soon for a long loan


class Wait(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A part of a wait: its cause, whom it is about ("" for nobody), and how long."""

    cause: Cause
    name: str
    ns: int


class LoanEnd(enum.StrEnum):
    """Why a loan ended."""

    TASK_DONE = "task_done"  # the borrower's task ended, however it ended
    COVERED = "covered"  # the borrower fell back within its own guarantee
    REPLACED = "replaced"  # the lender came back and another source took over the rest of the loan
    RUNNING = "running"  # it has not ended: in notes alone, as the outcome


class Loan(msgspec.Struct, frozen=True, gc=False):
    """Capacity of `lender` used by `borrower` for one request or job.

    lender is a tenant, a group (what it is guaranteed beyond its members), or "" for the pool's unowned part.
    `milli_gpu` for `end_ns - start_ns` nanoseconds.
    """

    lender: str
    borrower: str
    request_id: str
    milli_gpu: int
    start_ns: int
    end_ns: int
    reason: LoanEnd


class UsageRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The durable record of one attempt at a request or job (endpoint "job" or "replica"); (request_id, attempt) is its
    key.

    Times: `arrived_ns` is nanoseconds since the epoch (UTC); the others are lengths. `wait_ns` runs from arrival to
    dispatch, `first_token_ns` from arrival to the first byte of the answer (0 when there was none), `total_ns` from
    arrival to the end. `run_ns` is the time on the replica and `milli_gpu_ns` what it used there (GPU thousandths ×
    nanoseconds). `micro_per_gpu_hour` is the price it is charged at, 0 for what is not charged; the cost is their
    product, rounded only where a bill line is made (`core.pricing`). `waits` says what the wait was for, in order.
    `bytes_in` and `bytes_out` are the bodies of the request and of its answer. `cpu_ns` is the CPU time of a job's
    processes and `memory_mib_s` their memory (MiB × seconds), as its backend measured them; `gpu_memory_mib_s` is the
    GPU memory that it was given. 0 is also what is not measured.

    Fields are stored by position (array_like): new ones go to the end, with a default.
    """

    request_id: str
    attempt: int
    tenant: str
    app: str
    cost_center: str
    model: str
    version: str
    tier: str
    endpoint: str
    stream: bool
    pool: str
    replica: str
    outcome: Outcome
    status: int
    reason: str
    arrived_ns: int
    wait_ns: int
    first_token_ns: int
    total_ns: int
    run_ns: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    token_source: TokenSource
    milli_gpu: int
    milli_gpu_ns: int
    micro_per_gpu_hour: int
    loans: tuple[Loan, ...] = ()
    waits: tuple[Wait, ...] = ()
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_ns: int = 0
    memory_mib_s: int = 0
    gpu_memory_mib_s: int = 0
