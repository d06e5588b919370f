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
from commonpool.core.model import UsageRecord

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


class TenantStatus(msgspec.Struct, frozen=True):
    """A tenant now. `due_milli_gpu` is the part of what it lent that it needs back.

    `granted_until_ns` is when the grant ends that `elastic_cap_milli_gpu` comes from, None where it is as configured.
    Waits are over the last ten minutes, None where nothing was dispatched.
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


class LoanStatus(msgspec.Struct, frozen=True):
    """What one tenant holds of another's guarantee now, and since when; lender "" is the pool's unowned part.

    `due` says that the lender has work waiting: the next that frees goes back to it.
    """

    lender: str
    borrower: str
    milli_gpu: int
    requests: int
    start_ns_min: int
    due: bool


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A replica now. `state` is starting, ready, draining, backing_off, unknown or failed."""

    id: str
    model: str
    state: str
    since_ns: int
    restarts: int
    running: int
    slots: int
    milli_gpu: int
    address: str | None = None
    pid: int | None = None
    last_error: str | None = None


class Replicas(msgspec.Struct, frozen=True):
    """All replicas."""

    replicas: tuple[ReplicaStatus, ...]


class Status(msgspec.Struct, frozen=True):
    """The whole product at one moment. `warnings` are sentences for the operator; none is good."""

    version: str
    revision: int
    started_ns: int
    now_ns: int
    ready: bool
    pools: tuple[PoolStatus, ...]
    tenants: tuple[TenantStatus, ...]
    replicas: tuple[ReplicaStatus, ...]
    loans: tuple[LoanStatus, ...] = ()
    warnings: tuple[str, ...] = ()


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


class Records(msgspec.Struct, frozen=True):
    """Records of a period in order of arrival. `after` asks for those that follow, None where these are the last."""

    records: tuple[Attempt, ...]
    after: str | None


# -- keys -------------------------------------------------------------------------------------------------------------


class Key(msgspec.Struct, frozen=True):
    """A key without its secret. A `data` key belongs to an app of a tenant, an `admin` key to none: both are ""."""

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


class Keys(msgspec.Struct, frozen=True):
    """All keys, the oldest first."""

    keys: tuple[Key, ...]


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key is to be. `tier` is the one its requests have by default; `models` None is all its tenant may use."""

    tenant: str = ""
    app: str = ""
    scope: Literal["data", "admin"] = "data"
    tier: str | None = None
    models: tuple[str, ...] | None = None
    expires_ns: Ns | None = None
    note: str = ""


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
