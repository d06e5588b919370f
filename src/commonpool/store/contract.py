"""What a store is: usage records, keys, applied configurations, jobs, releases and the ledger, behind one protocol.

Every store passes the same tests. Calls block: an event loop makes them in a thread. Any thread may call any of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from commonpool.core.model import NO_LIMITS, Limits, UsageRecord
from commonpool.core.standing import Before, Passage
from commonpool.store.accounts import AccountStore
from commonpool.store.alerts import AlertStore
from commonpool.store.audit import AuditStore
from commonpool.store.jobs import JobStore
from commonpool.store.later import LaterStore
from commonpool.store.ledger import LedgerStore
from commonpool.store.prompts import PromptStore
from commonpool.store.releases import ReleaseStore
from commonpool.store.secrets import SecretStore
from commonpool.store.waits import WaitStore

Scope = Literal["data", "admin"]
Filters = Mapping[str, Sequence[str]]
NO_FILTERS: Filters = {}

Place = tuple[int, str, int]  # of a record among all: arrived_ns, request_id, attempt

TIMES = ("hour", "day")
FILTERABLE = ("tenant", "app", "cost_center", "model", "version", "tier", "endpoint", "outcome", "pool")
DIMENSIONS = FILTERABLE + TIMES
RECORD_FILTERS = (*FILTERABLE, "reason")  # what single attempts can be found by


class StoreError(Exception):
    """The store cannot do what was asked: what failed, where, and what to do."""


class RecordRefusedError(StoreError):
    """A record that the store can never take, such as one with a number over 64 bits. None of its batch is kept."""


class QueryError(StoreError):
    """A question that the store does not understand: names the value and those that are allowed."""


class KeyNotFoundError(StoreError):
    """There is no key with this id."""

    @classmethod
    def not_live(cls, key_id: str) -> "KeyNotFoundError":
        """There is none, or it was revoked."""
        return cls(f"There is no live key with the id {key_id!r}; `commonpool keys list` shows those there are.")


class Key(msgspec.Struct, frozen=True):
    """A key as it is kept: a salted digest of its text, whom it stands for, and when it ends (ns since the epoch).

    A `data` key serves the gateway, for an app of a tenant. `tier` is the default for requests that name none; `models`
    and `tiers` are those it may use, None for all of the tenant's. `limits` are its own, beside its app's and tenant's.

    An `admin` key serves the admin API, in a `role`: "" is platform-admin. `tenant` is the one that it is bound to, ""
    where it is the platform's. `account` is the account that owns it, "" for none.

    `networks` are those that it may come from, such as 10.0.0.0/8 and fd00::/8; None for all.
    """

    key_id: str
    salt: bytes
    digest: bytes
    scope: Scope
    tenant: str
    app: str
    created_ns: int
    tier: str | None = None
    models: tuple[str, ...] | None = None
    expires_ns: int | None = None
    revoked_ns: int | None = None
    note: str = ""
    role: str = ""
    account: str = ""
    tiers: tuple[str, ...] | None = None
    networks: tuple[str, ...] | None = None
    limits: Limits = NO_LIMITS


class ConfigRevision(msgspec.Struct, frozen=True):
    """A configuration that was applied: `sources` is its files' text by name."""

    revision: int
    applied_ns: int
    sources: dict[str, str]


class UsageRow(msgspec.Struct, frozen=True):
    """One line of a usage table; `keys` are the values of the table's `by`, in order.

    A request counts once, at its last attempt; everything else is of all attempts. `tokens_cached` is a part of
    `tokens_in`. `borrowed_milli_gpu_ns` is a part of `milli_gpu_ns`, what came from the pool's unowned part included.
    `lent_milli_gpu_ns` is what others used of this line's tenant, None where a line is not one lender's. Waits are of
    the `dispatched` attempts, None where there are none; p50 and p99 are waits that occurred (nearest rank).
    """

    keys: tuple[str, ...]
    requests: int
    attempts: int
    dispatched: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    milli_gpu_ns: int
    borrowed_milli_gpu_ns: int
    lent_milli_gpu_ns: int | None
    wait_ns_mean: int | None
    wait_ns_p50: int | None
    wait_ns_p99: int | None
    wait_ns_max: int | None
    cost_micro: int


class UsageTable(msgspec.Struct, frozen=True):
    """Usage of requests that arrived in [since_ns, until_ns), rows sorted by their keys; they add up to `total`.

    Hours and days are UTC: `2026-01-31T07:00Z`, `2026-01-31`.
    """

    by: tuple[str, ...]
    since_ns: int
    until_ns: int
    rows: tuple[UsageRow, ...]
    total: UsageRow


class LoanRow(msgspec.Struct, frozen=True):
    """What one borrower had of one lender ("" for the pool's unowned part), and for how long at a time."""

    lender: str
    borrower: str
    loans: int
    milli_gpu_ns: int
    length_ns_mean: int
    length_ns_max: int


class UsageSink(Protocol):
    """The writer's side of a store."""

    def add_usage(self, records: Iterable[UsageRecord]) -> tuple[UsageRecord, ...]:
        """Keeps the records, all or none; one whose (request_id, attempt) is there already is ignored.

        Returns those that are there already with other content; the first one stays.
        RecordRefusedError where one can never be kept, StoreError where none can be kept now.
        """

    def sync(self) -> None:
        """Returns when what was added survives a power cut."""


class Store(
    UsageSink,
    JobStore,
    ReleaseStore,
    LedgerStore,
    AccountStore,
    AuditStore,
    SecretStore,
    PromptStore,
    LaterStore,
    WaitStore,
    AlertStore,
    Protocol,
):
    """A whole store."""

    def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters = NO_FILTERS) -> UsageTable:
        """Usage grouped by some of DIMENSIONS. `filters` keeps what has one of the values of each of FILTERABLE named.

        No value given for a dimension keeps nothing. QueryError for other names.
        """

    def loans(self, since_ns: int, until_ns: int, tenants: Sequence[str] | None = None) -> tuple[LoanRow, ...]:
        """Who borrowed from whom, for the requests that arrived in [since_ns, until_ns), sorted by lender, borrower.

        `tenants` keeps the loans that one of them is a party to.
        """

    def record(self, request_id: str) -> tuple[UsageRecord, ...]:
        """All attempts at a request, in order; empty where it is unknown."""

    def records(
        self,
        since_ns: int,
        until_ns: int,
        after: Place | None,
        limit: int,
        filters: Filters = NO_FILTERS,
        *,
        newest: bool = False,
    ) -> tuple[UsageRecord, ...]:
        """Attempts at what arrived in [since_ns, until_ns), by their places: the first `limit` after one, or of all.

        `filters` keeps what has one of the values of each of RECORD_FILTERS named; QueryError for other names. With
        `newest` the order is turned round.
        """

    def arrival(self, since_ns: int, until_ns: int, number: int, *, newest: bool = False) -> int | None:
        """When this attempt of a period arrived, counted from its first, with `newest` from its last, from 1 on.

        None where there are fewer. So somebody knows how far a question reaches that may look at so many.
        """

    def before(self, passage: Passage, longest_ns: int) -> Mapping[str, Before]:
        """Who was before a request, by tenant (`core.standing.before`), of attempts that waited that long at most."""

    def add_key(self, key: Key) -> None:
        """Keeps a new key. StoreError where its id is taken."""

    def list_keys(self) -> tuple[Key, ...]:
        """All keys, ended ones too, oldest first."""

    def revoke_key(self, key_id: str, at_ns: int) -> Key:
        """Ends a key at once and returns it; the time of the first revocation stays. KeyNotFoundError."""

    def rotate_key(self, key_id: str, successor: Key, until_ns: int) -> Key:
        """Keeps `successor` and returns the old key, which now ends at `until_ns` at the latest.

        KeyNotFoundError where there is none, or it was revoked; then nothing is kept.
        """

    def add_config(self, config: ConfigRevision) -> None:
        """Keeps an applied configuration. StoreError where its revision is taken."""

    def configs(self, limit: int = 100) -> tuple[ConfigRevision, ...]:
        """The applied configurations, newest first."""

    def close(self) -> None:
        """Gives back all that the store holds. A second call does nothing."""
