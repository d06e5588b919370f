"""What the admin API says and hears, as structs: the JSON bodies, for the server and for its clients.

Units: `_ns` is nanoseconds (a time is since the epoch in UTC, anything else a length), `milli_gpu` thousandths of a
GPU, `_micro` millionths of the billing currency. GPU time over many GPUs and years outgrows 64 bits, so `gpu_seconds`
is an exact decimal, a string in JSON.
"""

from decimal import Decimal
from typing import Annotated, Literal

import msgspec

from commonpool.config import Change, Problem, Sources
from commonpool.core.explain import WaitPart
from commonpool.core.hints import Hint
from commonpool.core.model import NO_LIMITS, Hardware, Limits, Loan, ReclaimPolicy, UsageRecord
from commonpool.core.pictures import NodeView, PoolDevices, ResourceUse, TenantJobs
from commonpool.core.standing import Standing
from commonpool.core.underuse import Underuse
from commonpool.observe.decisions import Kind
from commonpool.store.audit import Fault, Outcome
from commonpool.store.releases import Release

Ns = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a call failed. `problems` are those of a refused configuration."""

    message: str
    type: str
    code: str
    param: str | None = None
    problems: tuple[Problem, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Error


class Health(msgspec.Struct, frozen=True):
    """Whether the product lives (`/healthz`) or can serve (`/readyz`); `message` says what is missing."""

    ok: bool
    message: str


# -- status -----------------------------------------------------------------------------------------------------------


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
    Waits are over the last ten minutes, None where nothing was dispatched. `budget` is None where it has none.
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

    `requests` and `jobs` run on it. `due` says that the lender has work waiting: the next that frees goes back to it.
    `return_ns` is when the last of it is expected back, null where that is not known of all of it.
    """

    lender: str
    borrower: str
    milli_gpu: int
    requests: int
    start_ns_min: int
    due: bool
    jobs: int = 0
    return_ns: int | None = None


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A replica now. `state` is starting, ready, failing (its circuit is open), unknown, draining or stopping.

    `node` and `devices` are where it runs, where its pool's nodes are known.
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

    `jobs` and `resources` are of those that have or use some. `gateway` is where the data plane listens.
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


# -- decisions --------------------------------------------------------------------------------------------------------


class Decision(msgspec.Struct, frozen=True):
    """Something that the product decided, and why: `explanation` is one sentence.

    `tenants` are those that it is about, of a loan the lender and the borrower. None named: all who use `model`, or,
    without a model, the platform. `subject` is a replica, a job, a model or a tenant. `node` is where, for those who
    see the whole platform. Events behind one of these are had with its `id`.
    """

    id: str
    at_ns: int
    kind: Kind
    tenants: tuple[str, ...]
    model: str
    pool: str
    subject: str
    explanation: str
    milli_gpu: int
    node: str


class Decisions(msgspec.Struct, frozen=True):
    """The last decisions, the newest first. `lost` is how many are not kept any more, for who sees the whole platform.

    `after` is the place behind the newest decision of all: events behind it are those that are not among these.
    """

    decisions: tuple[Decision, ...]
    lost: int
    after: str


# -- usage ------------------------------------------------------------------------------------------------------------


def gpu_seconds(milli_gpu_ns: int) -> Decimal:
    """GPU thousandths × nanoseconds as GPU seconds, exactly, however many."""
    return Decimal(f"{milli_gpu_ns}E-12")


class UsageRow(msgspec.Struct, frozen=True):
    """The use of one group; `group` has one value per name asked for in `by`, and none in the total.

    A request counts once, everything else is over all its attempts. `tokens_cached` is a part of `tokens_in`,
    `borrowed_gpu_seconds` of `gpu_seconds`. `lent_gpu_seconds` is None where a row is not one lender's. Waits are None
    where nothing was dispatched.
    """

    group: tuple[str, ...]
    requests: int
    attempts: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    gpu_seconds: Decimal
    borrowed_gpu_seconds: Decimal
    lent_gpu_seconds: Decimal | None
    wait_ns_mean: int | None
    wait_ns_p50: int | None
    wait_ns_p99: int | None
    wait_ns_max: int | None
    cost_micro: int


class UsageTable(msgspec.Struct, frozen=True):
    """The use of requests that arrived between two moments (`until_ns` excluded). The rows add up to `total`."""

    by: tuple[str, ...]
    since_ns: int
    until_ns: int
    currency: str
    rows: tuple[UsageRow, ...]
    total: UsageRow


class LoanSum(msgspec.Struct, frozen=True):
    """All loans from one lender ("" is the pool's unowned part) to one borrower."""

    lender: str
    borrower: str
    loans: int
    gpu_seconds: Decimal
    length_ns_mean: int
    length_ns_max: int


class LoanTable(msgspec.Struct, frozen=True):
    """Lender by borrower, for requests that arrived between two moments; pairs without a loan are left out."""

    since_ns: int
    until_ns: int
    loans: tuple[LoanSum, ...]


# -- one request ------------------------------------------------------------------------------------------------------


class Attempt(UsageRecord, frozen=True, array_like=False, kw_only=True):
    """One attempt at a request or job: the durable record that bills are made of, with its wait in words.

    `waits` are by cause and name, the longest first. `explanation` says in one line what became of it and why it
    waited, `advice` what to do about a refusal ("" where it was not refused).
    """

    waits: tuple[WaitPart, ...] = ()
    explanation: str
    advice: str


class LiveRequest(msgspec.Struct, frozen=True):
    """A request that waits or runs now. `wait_ns` and `waits` are so far, of this attempt, and empty while it runs."""

    tenant: str
    app: str
    model: str
    tier: str
    state: Literal["waiting", "running"]
    wait_ns: int
    waits: tuple[WaitPart, ...]
    explanation: str


class RequestStory(msgspec.Struct, frozen=True):
    """What is known of a request: what it does now (None once it has ended), and its attempts that have ended."""

    id: str
    live: LiveRequest | None
    attempts: tuple[Attempt, ...]


class Before(msgspec.Struct, frozen=True):
    """Requests of a tenant ("": of all others) beside one that waited for the same model: how many `waiting` were there
    when it came, and how many were `served` of all, later ones too, while it waited.
    """

    tenant: str
    waiting: int
    served: int


class Step(msgspec.Struct, frozen=True):
    """A moment in the life of a request or job; `explanation` says it in a sentence.

    `ns` is the length of the wait that begins (`queued`), else how long after the arrival it is. `waits` and `before`
    are those of a wait, and the longest and most come first. `replica`, `milli_gpu` and `loans` are of an attempt that
    is `dispatched`, `node` for those who see the whole platform. `outcome`, `status`, tokens and `cost_micro` are of
    what has `ended`; the cost is None where that is not known.
    """

    at_ns: int
    what: Literal["arrived", "queued", "dispatched", "first_token", "ended"]
    attempt: int
    explanation: str
    ns: int
    waits: tuple[WaitPart, ...] = ()
    before: tuple[Before, ...] = ()
    replica: str = ""
    node: str = ""
    milli_gpu: int = 0
    loans: tuple[Loan, ...] = ()
    outcome: str = ""
    status: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micro: int | None = None


class RequestTimeline(msgspec.Struct, frozen=True):
    """A request or job from its arrival to now or its end, `steps` in order of time.

    `state` is waiting, running, completed, cancelled, failed or refused. `standing` is its place while it waits.
    `cost_micro` is what its tenant is charged for the attempts that have ended.
    """

    id: str
    tenant: str
    app: str
    model: str
    tier: str
    state: str
    now_ns: int
    arrived_ns: int
    steps: tuple[Step, ...]
    standing: Standing | None
    cost_micro: int
    currency: str


class Records(msgspec.Struct, frozen=True):
    """Records of a period in order of arrival. `after` asks for those that follow, None where these are the last."""

    records: tuple[Attempt, ...]
    after: str | None


# -- keys -------------------------------------------------------------------------------------------------------------


class Key(msgspec.Struct, frozen=True):
    """A key without its secret.

    A `data` key belongs to an `app` of a `tenant`. An `admin` key has a `role`, in a tenant or on the platform (""),
    and belongs to an `account`, where somebody owns it. `tier` is the one of requests that name none. `models`, `tiers`
    and `networks` are those it may use and come from, null for all.
    """

    id: str
    scope: Literal["data", "admin"]
    tenant: str
    app: str
    tier: str | None
    models: tuple[str, ...] | None
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None
    note: str
    role: str
    account: str
    tiers: tuple[str, ...] | None
    networks: tuple[str, ...] | None
    limits: Limits


class Keys(msgspec.Struct, frozen=True):
    """All keys, the oldest first."""

    keys: tuple[Key, ...]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key is to be, as in `Key`. An `admin` key without a `role` is a platform-admin's."""

    tenant: str = ""
    app: str = ""
    scope: Literal["data", "admin"] = "data"
    tier: str | None = None
    models: tuple[str, ...] | None = None
    expires_ns: Ns | None = None
    note: str = ""
    role: str = ""
    account: str = ""
    tiers: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    limits: Limits = NO_LIMITS


class CreatedKey(msgspec.Struct, frozen=True):
    """A new key. `key` is the key itself, which is never shown again."""

    key: str
    about: Key


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the old key still works beside the new one."""

    overlap_ns: Ns = 0


# -- grants -----------------------------------------------------------------------------------------------------------


class NewGrant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a tenant may use, and for how long from now. It replaces what it was granted before."""

    tenant: str
    elastic_cap_milli_gpu: Annotated[int, msgspec.Meta(ge=1)]
    for_ns: Ns


class Grant(msgspec.Struct, frozen=True):
    """What a tenant may use until then; `until_ns` is None where no grant holds."""

    tenant: str
    elastic_cap_milli_gpu: int
    until_ns: int | None


# -- jobs -------------------------------------------------------------------------------------------------------------


class NewJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a job is to run, and what it asks for of the GPUs, as `core.model.Hardware`.

    `cwd` is a folder of the machine that it runs on. `tenant` is whose it is, "" for the one of the key; `app` "" is
    `default`, `tier` "" is batch where the tenant has it, else the one of its lowest priority. `expected_ns` is how
    long it will take, where that is known. A failed attempt is followed by another one `retries` times at most.
    """

    command: tuple[str, ...]
    cwd: str
    hardware: Hardware
    tenant: str = ""
    app: str = ""
    tier: str = ""
    name: str = ""
    env: dict[str, str] = {}
    expected_ns: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    reclaim: ReclaimPolicy = "borrow_not_preempt"
    retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0


class JobAttempt(msgspec.Struct, frozen=True):
    """One attempt at a job. `ended_ns` is None while it runs; `exit_status` is negative for a signal.

    `exit_status` is also None where it is not known how it ended.
    """

    attempt: int
    node: str
    devices: tuple[str, ...]
    started_ns: int
    ended_ns: int | None
    exit_status: int | None


class Job(msgspec.Struct, frozen=True):
    """A job. `wait_ns` is how long it waits or waited for its latest attempt, `run_ns` how long that runs or ran.

    `state` is queued, running, saving, done, failed or cancelled. `waits` say what it waits for, where it does;
    `explanation` says the same, or why it did not end well, in a sentence ("" where there is nothing to say).
    """

    id: str
    name: str
    tenant: str
    app: str
    tier: str
    pool: str
    state: str
    hardware: Hardware | None
    command: tuple[str, ...]
    cwd: str
    reclaim: ReclaimPolicy
    expected_ns: int | None
    submitted_ns: int
    ended_ns: int | None
    wait_ns: int
    run_ns: int
    attempts: int
    exit_status: int | None
    waits: tuple[WaitPart, ...]
    explanation: str


class Jobs(msgspec.Struct, frozen=True):
    """Jobs, the newest first. `after` asks for those that follow, None where these are the last."""

    jobs: tuple[Job, ...]
    after: str | None


class JobStory(msgspec.Struct, frozen=True):
    """A job, its latest attempts in order, what it borrows now, and the records of those that have ended."""

    job: Job
    attempts: tuple[JobAttempt, ...]
    loans: tuple[LoanStatus, ...]
    records: tuple[Attempt, ...]


class JobLog(msgspec.Struct, frozen=True):
    """A piece of what a job printed. `after` asks for the next one; `more` says that there is some already.

    `open` says that the job has not ended, so that more may come.
    """

    text: str
    after: str
    more: bool
    open: bool


# -- the cluster ------------------------------------------------------------------------------------------------------


class Nodes(msgspec.Struct, frozen=True):
    """The nodes that are known and their devices; `pools` has every pool, with or without nodes."""

    pools: tuple[PoolDevices, ...]
    nodes: tuple[NodeView, ...]


class Hints(msgspec.Struct, frozen=True):
    """What could be gained by moving work together, the best of each pool first; nothing is moved."""

    hints: tuple[Hint, ...]


class PlaceQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where would it go: a job of `tenant` that asks for `hardware`, or one more replica of `model`.

    `expected_ns` is how long the job will take, where that is known.
    """

    tenant: str = ""
    model: str = ""
    hardware: Hardware | None = None
    expected_ns: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None


# -- releases ---------------------------------------------------------------------------------------------------------


class Underused(msgspec.Struct, frozen=True):
    """The guarantees that are under-used, and what of them could be released in all."""

    tenants: tuple[Underuse, ...]
    offered_milli_gpu: int


class NewRelease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of its guarantee a tenant releases, beside what it has released already; None is what is offered."""

    tenant: str
    milli_gpu: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""


class Releases(msgspec.Struct, frozen=True):
    """Releases, with who made and who undid them."""

    releases: tuple[Release, ...]


# -- configuration ----------------------------------------------------------------------------------------------------


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration's files. `revision` is the one in force that they are, or were made from.

    A change made from a revision that is no longer in force is refused; None does not care.
    """

    sources: Sources
    revision: int | None = None


class Changes(msgspec.Struct, frozen=True):
    """What would change, or has changed. `revision` is the one in force now."""

    revision: int
    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()


class PolicyFiles(msgspec.Struct, frozen=True):
    """Policies in Cedar, and the schema that they are checked against, by file; `digest` tells two editions apart."""

    files: dict[str, str]
    digest: str


# -- prompts ----------------------------------------------------------------------------------------------------------


class PromptLogOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked and answered from now on is kept for `keep_ns`."""

    keep_ns: int = 30 * 86_400_000_000_000


class PromptLog(msgspec.Struct, frozen=True):
    """A tenant's prompt log. `since_ns`, `keep_ns` and `switched_by` are None where it is off.

    `kept_bytes` is what is kept of it, encrypted; `lost` are the entries since the start that there was no room for.
    """

    tenant: str
    since_ns: int | None
    keep_ns: int | None
    switched_by: str | None
    kept_bytes: int
    lost: int


class PromptEntry(msgspec.Struct, frozen=True):
    """One request of a prompt log; `at_ns` is when it arrived, `status` what the client got, 499 where it left."""

    request_id: str
    at_ns: int
    app: str
    model: str
    endpoint: str
    status: int
    size: int


class PromptEntries(msgspec.Struct, frozen=True):
    """Entries, the newest first. `after` asks for those that follow, None where these are the last."""

    log: PromptLog
    entries: tuple[PromptEntry, ...]
    after: str | None


class Prompt(msgspec.Struct, frozen=True):
    """What was asked and answered. A streamed answer is as it would be in one piece. `cut`: one is not whole."""

    about: PromptEntry
    asked: str
    answered: str
    cut: bool


class Deleted(msgspec.Struct, frozen=True):
    """So many entries were deleted."""

    count: int


class Rotated(msgspec.Struct, frozen=True):
    """So many data keys were wrapped anew by the master key in force."""

    count: int


# -- alerts -----------------------------------------------------------------------------------------------------------


class Alert(msgspec.Struct, frozen=True):
    """Something that is wrong, or was until lately; docs/alerts.md has the names.

    `state` is "pending" where it has not lasted for long enough yet, then "firing" from `fired_ns`, "resolved" from
    `ended_ns`. `tenant` is whose it is, "" for the platform's; `about` says of what it is. `silenced_until_ns` is until
    when the caller's channels are not told of it, None where they are.
    """

    id: str
    name: str
    severity: Literal["info", "warning", "critical"]
    state: Literal["pending", "firing", "resolved"]
    tenant: str
    pool: str
    about: dict[str, str]
    sentence: str
    advice: str
    since_ns: int
    fired_ns: int | None = None
    ended_ns: int | None = None
    silenced_until_ns: int | None = None
    silenced_by: str = ""


class AlertChannel(msgspec.Struct, frozen=True):
    """Where alerts are told. While that fails, since when and why; `failing_since_ns` is None while it does not."""

    name: str
    kind: str
    tenant: str
    severity: str
    failing_since_ns: int | None = None
    error: str = ""


class Alerts(msgspec.Struct, frozen=True):
    """What fires, then what is about to, then what is over, the newest first of each; and the channels."""

    alerts: tuple[Alert, ...]
    channels: tuple[AlertChannel, ...]


class NewSilence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nobody is to be told of an alert until then (ns since the epoch)."""

    until_ns: int


class Silenced(msgspec.Struct, frozen=True):
    """An alert that nobody is told of until then; with a tenant, that tenant's channels are not."""

    id: str
    tenant: str
    until_ns: int
    by: str


class ChannelTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something is to be sent through this channel."""

    channel: str


class ChannelTested(msgspec.Struct, frozen=True):
    """The channel has taken it."""

    channel: str


# -- the audit log ----------------------------------------------------------------------------------------------------


class AuditEntry(msgspec.Struct, frozen=True):
    """Decisions alike, `count` of them, from `at_ns` until `until_ns`; the rest is of the first one.

    `tenant` is whose things it was about, "" where those of the platform or of several. `lost` counts decisions that
    could not be kept. `hash` is in hexadecimal: docs/authorization.md says what it is made of.
    """

    number: int
    at_ns: int
    until_ns: int
    count: int
    caller: str
    action: str
    tenant: str
    outcome: Outcome
    method: str
    path: str
    peer: str
    policies: tuple[str, ...]
    hash: str


class AuditEntries(msgspec.Struct, frozen=True):
    """Entries, the newest first. `after` asks for those that follow, None where these are the last."""

    entries: tuple[AuditEntry, ...]
    after: str | None


class AuditVerdict(msgspec.Struct, frozen=True):
    """Whether the log is as it was written, up to `head`: `faults` says where it is not.

    `more`: it may go on behind that; ask again `after` it. The last head is what to keep elsewhere.
    """

    whole: bool
    head: str
    faults: tuple[Fault, ...]
    more: bool
