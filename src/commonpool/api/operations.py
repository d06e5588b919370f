"""What the admin API needs of the running product. `app` implements it; tests pass a fake.

`tenants` None is all of them, those that are gone and what is of no tenant included; an empty list is none.

Everything is called on the event loop. Methods that are not `async` answer from memory at once; the others may wait,
and do their blocking work elsewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from commonpool.access.audit import AuditLog
from commonpool.access.callers import Caller
from commonpool.access.people import People
from commonpool.access.policy import Authority
from commonpool.access.policy_files import Policies
from commonpool.access.scope import Scope
from commonpool.api.wire import alerts as alerts_wire
from commonpool.api.wire import keys as keys_wire
from commonpool.api.wire.advice import Advised
from commonpool.api.wire.nodes import Nodes, PlaceQuestion
from commonpool.api.wire.requests import LiveRequest
from commonpool.api.wire.status import ReplicaStatus, Status
from commonpool.backends.joblog import LogPart
from commonpool.config import Config, Sources
from commonpool.core.billing import Bill, Lent
from commonpool.core.burn import Promise
from commonpool.core.hints import Hint
from commonpool.core.ledger import Posting
from commonpool.core.model import Job, UsageRecord, Wait
from commonpool.core.said import Said
from commonpool.core.standing import Before, Passage, Standing
from commonpool.core.telling import Silence
from commonpool.core.trial import Trial
from commonpool.core.underuse import Underuse
from commonpool.core.views import LoanView
from commonpool.observe.changes import Changed
from commonpool.observe.decisions import Decisions
from commonpool.store.audit import AuditEntry
from commonpool.store.contract import Filters, Key, LoanRow, Place, UsageTable
from commonpool.store.jobs import JobAttempt, JobPlace, JobRecord, JobState, Task
from commonpool.store.keys import NewKey
from commonpool.store.ledger import EndPlace, Reading, Reconciliation
from commonpool.store.prompts import PromptHead, PromptLog, PromptPlace, PromptText
from commonpool.store.releases import Release
from commonpool.store.waits import Uncounted, WaitTable


class OperationError(Exception):
    """The product will not or cannot do it. The text is one sentence: what, which value, what to do.

    `status`, `kind` and `code` are the answer's HTTP status and the `type` and `code` of its error body.
    """

    status = 400
    kind = "invalid_request_error"
    code = "refused"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class BadRequestError(OperationError):
    """The request does not have the form that the endpoint takes, or names what there is not."""

    code = "bad_request"


class NotFoundError(OperationError):
    """The thing that was named does not exist."""

    status = 404
    kind = "not_found_error"
    code = "not_found"


class ConflictError(OperationError):
    """It was true when the caller looked, and no longer is."""

    status = 409
    kind = "conflict_error"
    code = "conflict"


class TooManyStreamsError(OperationError):
    """More streams of events than one caller may have open, or than there may be."""

    status = 429
    kind = "rate_limit_error"
    code = "too_many_streams"


class NoMoreStreamsError(TooManyStreamsError):
    """It is not the caller's own that are too many."""

    status = 503


class UnavailableError(OperationError):
    """It cannot be done now, for a reason of the product's own (a full disk, a stopping process)."""

    status = 503
    kind = "server_error"
    code = "unavailable"


class Jobs(Protocol):
    """The jobs of the running product. What is refused is a JobError or a BackendError, each with a sentence."""

    async def submit(self, job: Job, task: Task) -> JobRecord:
        """Take a job, which is given its id here."""

    async def list(
        self,
        tenants: Sequence[str] | None,
        states: Sequence[JobState],
        *,
        after: JobPlace | None,
        limit: int,
        pools: Sequence[str] | None = None,
    ) -> Sequence[JobRecord]:
        """Jobs of these tenants and pools (None: of all) in one of these states, the newest first."""

    async def show(self, job_id: str) -> tuple[JobRecord, tuple[JobAttempt, ...]]:
        """A job and its latest attempts, in order. Raises JobNotFoundError."""

    def waits(self, job_id: str) -> tuple[Wait, ...] | None:
        """What a job that waits has waited for so far; None where it does not wait."""

    def loans(self, job_id: str) -> Sequence[LoanView]:
        """What a job that runs borrows."""

    async def logs(self, job_id: str, after: str) -> LogPart:
        """What it printed behind a place, "" for the beginning. ValueError where there is no such place."""

    async def cancel(self, job_id: str) -> JobRecord:
        """End a job, and return when it has ended. Raises JobNotFoundError."""


class Billed(msgspec.Struct, frozen=True):
    """A bill of what is in the books until `until_ns`. `closed`: all of it lies in closed months, and never changes.

    `forecast_micro` is its total at the end of the period, None where that is over. `notes` are sentences.
    """

    bill: Bill
    until_ns: int
    closed: bool
    forecast_micro: int | None
    notes: tuple[Said, ...] = ()


class Month(msgspec.Struct, frozen=True):
    """A month of the billing time zone. `over`: all its hours are in the books. `closed_ns` is when it was, by whom."""

    name: str
    start_ns: int
    end_ns: int
    over: bool
    closed_ns: int | None = None
    by: str = ""


class Settled(msgspec.Struct, frozen=True):
    """An attempt and its postings, of which those about `booked` hours are in the books.

    `problem` says why there are none.
    """

    record: UsageRecord
    postings: tuple[Posting, ...]
    booked: frozenset[int]
    problem: str = ""


class Worked(msgspec.Struct, frozen=True):
    """A page of the attempts that a bill is made of, and behind which place there may be more, None for no more.

    `looked_ns` is until when it has looked through what ended, where it stopped for that and not because it is full.
    """

    found: Sequence[Settled] = ()
    after: EndPlace | None = None
    looked_ns: int | None = None


class Bills(Protocol):
    """What the books of the running product say: of hours that are over, never of the one that goes on."""

    async def bill(self, start_ns: int, end_ns: int, by: Sequence[str], filters: Filters) -> Billed:
        """The bill of a period, by some of `core.statement.DIMENSIONS`, filtered by some of its FILTERS."""

    async def lending(
        self, start_ns: int, end_ns: int, tenants: Sequence[str] | None
    ) -> tuple[int, Mapping[tuple[str, str], Lent]]:
        """Until when the books are, and what each account lent to each borrower in a period, of these tenants."""

    async def months(self) -> Sequence[Month]:
        """The months since the books began, oldest first."""

    async def close(self, name: str, by: str) -> Month:
        """Close a month, once and for ever. ConflictError where it is closed, not over, or not in the books."""

    async def read(self, reading: Reading) -> bool:
        """Take down a reading; False where it is there already. ConflictError where it cannot be any more."""

    async def reconciliations(self, since_ns: int, until_ns: int) -> Sequence[Reconciliation]:
        """As the store's."""

    async def settled(self, request_id: str) -> Sequence[Settled]:
        """All attempts at a request, in order, with all their postings; what ended before the call is among them."""

    async def worked(self, start_ns: int, end_ns: int, filters: Filters, after: EndPlace | None, limit: int) -> Worked:
        """The attempts that a bill's work is made of, in pages as the store's, with their postings in the period.

        With filters it looks through so many at once, and a page may be empty though there are more.
        """


class Prompts(Protocol):
    """The prompt logs of tenants. What cannot be encrypted or opened is a SecretsError."""

    @property
    def lost(self) -> Mapping[str, int]:
        """By tenant, the entries since the start that there was no room for."""

    def log_of(self, tenant: str) -> PromptLog | None:
        """A tenant's log, None where it is off."""

    async def switch_on(self, tenant: str, keep_ns: int, by: str) -> PromptLog:
        """Keep what it asks from now on."""

    async def switch_off(self, tenant: str) -> None:
        """Keep nothing of what it asks from now on."""

    async def heads(self, tenant: str, before: PromptPlace | None, limit: int) -> Sequence[PromptHead]:
        """Its entries, the newest first; what ended before the call is among them."""

    async def kept_bytes(self, tenant: str) -> int:
        """How much is kept of it."""

    async def show(self, tenant: str, request_id: str) -> tuple[PromptHead, PromptText] | None:
        """An entry, opened; None where there is none."""

    async def delete(self, tenant: str, request_id: str | None = None) -> int:
        """Delete an entry, or all of a tenant's with their data key; returns how many there were."""


class Stream(Protocol):
    """One who listens to what is decided and what changes. `waited` has to be called again and again."""

    async def waited(self, within_s: float) -> bool:
        """Return after the next look at the core, or after so long; False when it is over, since the product stops."""

    def changed(self) -> Changed:
        """What has changed since this was called last."""

    def close(self) -> None:
        """Listen no more."""


class Feed(Protocol):
    """What the product decided, and what changes. `run` tells the numbers of this process from those of another one."""

    run: str
    decisions: Decisions

    def listen(self, caller: str, address: str) -> Stream:
        """Listen. TooManyStreamsError where the caller, its address, or all together have too many open already."""


class Passed(msgspec.Struct, frozen=True):
    """An attempt that runs, as a record that has not ended, and when the first token of its answer came; 0: not yet,
    or not known here.
    """

    record: UsageRecord
    first_token_at_ns: int


class Waits(Protocol):
    """How long requests waited. `promises` are those of all tenants, as they stood at `looked_ns`; 0: not looked at."""

    @property
    def promises(self) -> Sequence[Promise]:
        """By tenant, tier and name."""

    @property
    def looked_ns(self) -> int:
        """When they were looked at."""

    async def table(
        self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters
    ) -> tuple[WaitTable, bool, Uncounted]:
        """As the store's, whether what ended before the call is in it, and what is left to count."""


class Alerts(Protocol):
    """What is wrong with the running product, and who is told."""

    def listing(self, scope: Scope) -> alerts_wire.Alerts:
        """Those of the tenants in the scope, and the channels that are theirs."""

    def tenant_of(self, alert: str) -> str | None:
        """Whose it is, "" for the platform's; None where there is no such alert."""

    async def silence(self, silence: Silence) -> None:
        """It holds when this returns. ConflictError where there are too many."""

    async def end_silence(self, alert: str, tenant: str) -> bool:
        """Whether there was one of this tenant, "" for everybody's; it holds no more when this returns."""

    async def test(self, channel: str) -> None:
        """Send something through a channel of the configuration. UnavailableError where it is not taken."""


class Guarantees(Protocol):
    """What tenants do not use of their guarantees, and what they release of them."""

    def underuse(self) -> Sequence[Underuse]:
        """The guarantees that are under-used; `core.underuse.underuse`."""

    def releasable(self, tenant: str) -> int:
        """How many milli_gpu of its guarantee a tenant of the configuration can release; `core.underuse.releasable`."""

    async def release(self, release: Release) -> Release:
        """Keep a release of a tenant of the configuration, have it hold from now on, and return it with its number."""

    async def undo(self, tenant: str, by: str) -> Sequence[Release]:
        """End the releases of a tenant that hold: its whole guarantee holds again. Returns them."""

    async def releases(self, tenants: Sequence[str] | None) -> Sequence[Release]:
        """The newest releases of these tenants, undone ones too, the newest first."""


class Keys(Protocol):
    """The keys of the running product, in the store and where they are checked."""

    async def list(self) -> Sequence[Key]:
        """All keys, the oldest first."""

    async def create(self, new: keys_wire.NewKey) -> NewKey:
        """A new key, usable when this returns. Its tenant, app, tier and models exist."""

    async def revoke(self, key_id: str) -> Key:
        """The key works no more when this returns. Raises `KeyNotFoundError`."""

    async def rotate(self, key_id: str, overlap_ns: int) -> NewKey:
        """A new key like this one, which works on for `overlap_ns`. Raises `KeyNotFoundError`."""


class Operations(Protocol):
    """The running product, as its operators see it."""

    def now_ns(self) -> int:
        """The time, since the epoch."""

    async def by_key(self, authorization: bytes, peer: str | None) -> Caller | None:
        """Whose live key this value of an `Authorization` header is, sent from this address; None for any other."""

    def authority(self) -> Authority:
        """Who may do what, by the policies in force."""

    def people(self) -> People:
        """Accounts, sessions and the issuer: who comes without a key of ours."""

    async def remove_account(self, name: str) -> tuple[str, ...]:
        """As `People.accounts`; the account's keys, whose ids are returned, count no more when this returns."""

    def audit(self) -> AuditLog:
        """Where it is written down who was allowed or denied what."""

    async def audited(
        self, filters: Filters, since_ns: int, until_ns: int, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        """As the store's, and complete but for what is still counted."""

    def prompts(self) -> Prompts:
        """The prompt logs."""

    async def rotate_secrets(self) -> int:
        """Have the master key in force wrap every data key; how many another one had wrapped. Raises SecretsError."""

    def status(self) -> Status:
        """Pools, tenants, replicas and open loans at this moment; `wire` and `views` help to make it."""

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """All replicas, in the order of their models."""

    def ready(self) -> tuple[bool, str]:
        """Whether every model has a ready replica and records can be kept; if not, what is missing."""

    async def metrics(self) -> bytes:
        """The metrics in Prometheus' text format."""

    def config(self) -> Config:
        """The configuration in force."""

    def sources(self) -> Sources:
        """Its files."""

    async def apply(self, sources: Sources, config: Config, policies: Policies, revision: int) -> None:
        """Bring this configuration, with its policies, into force as `revision + 1`, or change nothing at all.

        Returns when the new policy decides; replicas that go are drained afterwards, as `replicas` shows. Raises
        `ConflictError` where `revision` is not the one in force, `UnavailableError` where it cannot be kept.
        """

    def grant(self, tenant: str, elastic_cap: int, until_ns: int) -> None:
        """Let a tenant of the configuration use this many milli_gpu until then; 0 takes a grant back.

        A grant is not kept: it ends with the process.
        """

    def nodes(self) -> Nodes:
        """The nodes and their devices at this moment; `views.nodes` makes it."""

    def place(self, question: PlaceQuestion) -> Trial:
        """What would become of it; its tenant or model is one of the configuration. `views.place` makes it."""

    def hints(self) -> Sequence[Hint]:
        """What could be gained by moving work together; `core.moves.worthwhile`."""

    def advice(self) -> Advised:
        """The advice of the last two weeks, or that it is being made."""

    def guarantees(self) -> Guarantees:
        """What is not used of guarantees, and what is released of them."""

    async def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters) -> UsageTable:
        """As the store's, and complete: what ended before the call is in it."""

    async def loans(self, since_ns: int, until_ns: int, tenants: Sequence[str] | None) -> Sequence[LoanRow]:
        """As the store's, and complete."""

    async def record(self, request_id: str) -> Sequence[UsageRecord]:
        """As the store's, and complete."""

    async def records(
        self, since_ns: int, until_ns: int, after: Place | None, limit: int, filters: Filters, *, newest: bool = False
    ) -> Sequence[UsageRecord]:
        """As the store's, and complete."""

    async def arrival(self, since_ns: int, until_ns: int, number: int, *, newest: bool = False) -> int | None:
        """As the store's."""

    def live(self, request_id: str) -> LiveRequest | None:
        """A request that waits or runs now; `views.live` makes it."""

    def standing(self, request_id: str) -> Standing | None:
        """Where a request that waits stands in its line."""

    async def running(self, request_id: str) -> Passed | None:
        """The attempt at a request or job that runs now; the gateway of another node may be asked about it."""

    def recovered(self) -> bool:
        """Whether all that was open before the start is known by now: what is not, is not open."""

    async def before(self, passage: Passage) -> Mapping[str, Before]:
        """Who was before a request, by tenant: of what ended before the call, and of what waits or runs."""

    def feed(self) -> Feed:
        """What the product decided, and what changes."""

    def jobs(self) -> Jobs:
        """The jobs."""

    def waits(self) -> Waits:
        """The waits."""

    def alerts(self) -> Alerts:
        """The alerts."""

    def bills(self) -> Bills:
        """The bills."""

    def keys(self) -> Keys:
        """The keys."""
