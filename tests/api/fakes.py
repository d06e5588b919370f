"""A running product to test the admin API with: the store in memory, everything else as it is told."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from commonpool.access import policy_files
from commonpool.access.audit import AuditLog
from commonpool.access.callers import Caller, by_admin_key, by_data_key
from commonpool.access.passwords import Passwords
from commonpool.access.people import People
from commonpool.access.policy import Authority
from commonpool.access.policy_files import Policies
from commonpool.access.secrets import MasterKey, Masters, Vault
from commonpool.api import views
from commonpool.api.operations import ConflictError, Passed
from commonpool.api.wire.advice import Advised
from commonpool.api.wire.nodes import Nodes, PlaceQuestion
from commonpool.api.wire.requests import LiveRequest
from commonpool.api.wire.status import LoanStatus, ModelStatus, PoolStatus, ReplicaStatus, Status, TenantStatus
from commonpool.app.alerts import Alerting, Lookout
from commonpool.app.billing import Bills
from commonpool.app.feed import Feed
from commonpool.app.keys import Keyring
from commonpool.config import Config, Sources, parse_sources
from commonpool.config.structs import Channel
from commonpool.control.alerting.courier import UndeliveredError
from commonpool.control.alerting.letters import Letter
from commonpool.control.alerting.rules import Away
from commonpool.control.prompts import Prompts
from commonpool.control.waits import ASKED_MAX, WaitBooks
from commonpool.core import moves, underuse
from commonpool.core.alerts import Trouble
from commonpool.core.events import Released
from commonpool.core.hints import Hint
from commonpool.core.machine import Machine
from commonpool.core.model import UsageRecord
from commonpool.core.said import Said
from commonpool.core.standing import Before, Passage, Standing, together
from commonpool.core.trial import Trial
from commonpool.store.audit import AuditEntry
from commonpool.store.contract import Filters, LoanRow, Place, UsageTable
from commonpool.store.ledger import Reconciliation
from commonpool.store.memory import MemoryStore
from commonpool.store.releases import Release
from tests.access.house import FAST, plain_web
from tests.api.job_fakes import FakeJobs

POLICIES = policy_files.load()
NOW = 1_800_000_000 * 10**9
ADMIN = b"Bearer cp_admin"
KEY_OF_A = b"Bearer cp_a"
MASTER = MasterKey(b"1" * 32)

CONFIG = """
pools:
  main: {gpus: 4_gpu}
models:
  echo:
    version: v1
    gpu: 2_gpu
    slots: 4
    context: 2048
    engine: {kind: attached, urls: ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]}
prices:
  currency: EUR
  gpu_hour: {main: 2.50}
tenants:
  support:
    tenant: {guaranteed: 2_gpu, elastic_cap: 4_gpu}
    queue: {priority: {interactive: 9, batch: 3}}
    apps: {helpdesk: {cost_center: CC-1}}
  research:
    tenant: {guaranteed: 1_gpu, elastic_cap: 4_gpu}
    apps: {papers: {}, slides: {}}
"""

TENANT = TenantStatus(
    name="support",
    pool="main",
    guaranteed_milli_gpu=2000,
    elastic_cap_milli_gpu=4000,
    in_use_milli_gpu=500,
    lent_milli_gpu=1500,
    borrowed_milli_gpu=0,
    due_milli_gpu=0,
    waiting=3,
    running=1,
    wait_ns_p50=420_000_000,
    wait_ns_p99=None,
)
REPLICA = ReplicaStatus(
    id="echo-0.1",
    model="echo",
    state="ready",
    since_ns=NOW - 90 * 10**9,
    running=1,
    slots=4,
    milli_gpu=2000,
)
MODEL = ModelStatus(
    name="echo",
    pool="main",
    residency="resident",
    wanted=1,
    why="first_token",
    ready=1,
    starting=0,
    draining=0,
    waiting=0,
    bottleneck="none",
    broken=False,
    error="",
    unplaced="",
)
LOAN = LoanStatus("support", "research", 1500, 6, NOW - 12 * 10**9, due=False)


def sources(text: str = CONFIG) -> Sources:
    """A configuration of one file."""
    return Sources("commonpool.yaml", {"commonpool.yaml": text})


class TakesAll:
    """A courier whose letters arrive, or do not for a reason."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.refuses = ""

    async def deliver(self, channel: Channel, letter: Letter, moment: Callable[[int], str]) -> None:
        del channel, moment
        if self.refuses:
            raise UndeliveredError(self.refuses)
        self.letters.append(letter)

    async def close(self) -> None:
        """Nothing is open."""


class NoBooks:
    """Nothing is closed yet."""

    troubles: Sequence[Trouble] = ()
    last: Sequence[Reconciliation] = ()


class FakeGuarantees:
    """The guarantees of a machine, of which these are said to be under-used."""

    def __init__(self, store: MemoryStore, machine: Machine, underused: Sequence[underuse.Underuse]) -> None:
        self._store = store
        self._machine = machine
        self._underused = underused

    def underuse(self) -> Sequence[underuse.Underuse]:
        return self._underused

    def releasable(self, tenant: str) -> int:
        return underuse.releasable(self._machine.state, tenant)

    async def release(self, release: Release) -> Release:
        kept = self._store.add_release(release)
        self._machine.handle(Released(release.tenant, self._store.released()[release.tenant]), NOW)
        return kept

    async def undo(self, tenant: str, by: str) -> Sequence[Release]:
        undone = self._store.undo_releases(tenant, NOW, by)
        self._machine.handle(Released(tenant, 0), NOW)
        return undone

    async def releases(self, tenants: Sequence[str] | None) -> Sequence[Release]:
        return self._store.releases(tenants=tenants)


class FakeOperations:
    """`Operations`, with what it answers as attributes and what it was asked in `applied`."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.tenants: tuple[TenantStatus, ...] = (TENANT,)
        self.replica_states: list[tuple[ReplicaStatus, ...]] = [(REPLICA,)]
        self.models_now: tuple[ModelStatus, ...] = ()
        self.loans_now: tuple[LoanStatus, ...] = (LOAN,)
        self.warnings: tuple[str, ...] = ()
        self.missing = ""
        self.open_requests: dict[str, LiveRequest] = {}
        self.broken: Exception | None = None
        self.applied: list[int] = []
        self.granted: list[tuple[str, int, int]] = []
        self.fake_jobs = FakeJobs(self.store)
        self._sources = sources()
        self._config = parse_sources(self._sources)
        self.now = NOW
        self.fake_bills = Bills(self.store, lambda: self._config, self.now_ns, lambda: None)
        self.wait_books = self.counting(ASKED_MAX)
        self.machine = Machine(self._config.policy)
        self.fake_feed = Feed("run")
        self.fake_recovered = True
        self.first_tokens: dict[str, int] = {}
        self.underused: tuple[underuse.Underuse, ...] = ()
        self.advised = Advised("making")
        self.callers = {ADMIN: by_admin_key("k1"), KEY_OF_A: by_data_key("k2", "a", "default")}
        self.courier = TakesAll()
        self.away = Away()
        lookout = Lookout(
            self,
            state=lambda: self.machine.state,
            books=NoBooks(),
            away=lambda: self.away,
            promises=tuple,
            gateways=tuple,
            behind_ns=0,
        )
        self.fake_alerts = Alerting(self, self.store, lookout, self.courier)
        self.fake_authority = Authority(POLICIES)
        self.fake_audit = AuditLog(self.store, self.now_ns)
        self.vault = Vault(self.store, Masters(MASTER), self.now_ns)
        self.fake_prompts = Prompts(self.store, self.vault, self.now_ns)
        self.fake_prompts.begin()
        self.fake_people = People(
            self.store, self.now_ns, lambda: self._config.access, passwords=Passwords(FAST), web=plain_web()
        )

    def now_ns(self) -> int:
        return self.now

    def counting(self, asked_max: int) -> WaitBooks:
        """Waits of which a question has so many records counted, at most."""
        return WaitBooks(
            self.store,
            clock=self.now_ns,
            policy=lambda: self._config.policy,
            flush=lambda: None,
            pause=lambda _: None,
            asked_max=asked_max,
        )

    async def by_key(self, authorization: bytes, peer: str | None) -> Caller | None:
        del peer
        return self.callers.get(authorization)

    def people(self) -> People:
        return self.fake_people

    async def remove_account(self, name: str) -> tuple[str, ...]:
        return await self.fake_people.accounts.remove(name)

    def authority(self) -> Authority:
        return self.fake_authority

    def prompts(self) -> Prompts:
        return self.fake_prompts

    async def rotate_secrets(self) -> int:
        return self.vault.rotate()

    def audit(self) -> AuditLog:
        return self.fake_audit

    async def audited(
        self, filters: Filters, since_ns: int, until_ns: int, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        await self.fake_audit.write()
        return self.store.audit(filters, since_ns, until_ns, before, limit)

    def nodes(self) -> Nodes:
        return views.nodes(self.machine.state, NOW)

    def place(self, question: PlaceQuestion) -> Trial:
        return views.place(self.machine.state, question, NOW)

    def hints(self) -> Sequence[Hint]:
        return moves.worthwhile(self.machine.state, (), NOW)

    def advice(self) -> Advised:
        return self.advised

    def guarantees(self) -> FakeGuarantees:
        return FakeGuarantees(self.store, self.machine, self.underused)

    def status(self) -> Status:
        if self.broken is not None:
            raise self.broken
        return Status(
            version="1",
            revision=self._config.policy.revision,
            started_ns=NOW - 3600 * 10**9,
            now_ns=NOW,
            ready=not self.missing,
            pools=(PoolStatus("main", "elastic", 4000, 2000, 1000, scaled=False),),
            tenants=self.tenants,
            replicas=self.replicas(),
            models=self.models_now,
            loans=self.loans_now,
            warnings=self.warnings,
            said={sentence: Said("alert.underuse", {"tenant": "support"}) for sentence in self.warnings},
        )

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The next of the states; the last one stays."""
        return self.replica_states.pop(0) if len(self.replica_states) > 1 else self.replica_states[0]

    def ready(self) -> tuple[bool, str]:
        return not self.missing, self.missing or "ready"

    async def metrics(self) -> bytes:
        return b"commonpool_requests_total 7\n"

    def config(self) -> Config:
        return self._config

    def sources(self) -> Sources:
        return self._sources

    def configure(self, sources: Sources) -> None:
        """As if it had been started with these."""
        self._sources, self._config = sources, parse_sources(sources)

    async def apply(self, sources: Sources, config: Config, policies: Policies, revision: int) -> None:
        if revision != self._config.policy.revision:
            raise ConflictError(f"revision {revision} is not in force")
        policy = msgspec.structs.replace(config.policy, revision=revision + 1)
        self._sources, self._config = sources, msgspec.structs.replace(config, policy=policy)
        self.fake_authority = Authority(policies)
        self.applied.append(revision)

    def grant(self, tenant: str, elastic_cap: int, until_ns: int) -> None:
        self.granted.append((tenant, elastic_cap, until_ns))

    async def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters) -> UsageTable:
        return self.store.usage(by, since_ns, until_ns, filters)

    async def loans(self, since_ns: int, until_ns: int, tenants: Sequence[str] | None) -> Sequence[LoanRow]:
        return self.store.loans(since_ns, until_ns, tenants)

    async def record(self, request_id: str) -> Sequence[UsageRecord]:
        return self.store.record(request_id)

    async def records(
        self, since_ns: int, until_ns: int, after: Place | None, limit: int, filters: Filters, *, newest: bool = False
    ) -> Sequence[UsageRecord]:
        return self.store.records(since_ns, until_ns, after, limit, filters, newest=newest)

    async def arrival(self, since_ns: int, until_ns: int, number: int, *, newest: bool = False) -> int | None:
        return self.store.arrival(since_ns, until_ns, number, newest=newest)

    def feed(self) -> Feed:
        return self.fake_feed

    def standing(self, request_id: str) -> Standing | None:
        return self.machine.standing(request_id, self.now)

    def recovered(self) -> bool:
        return self.fake_recovered

    async def running(self, request_id: str) -> Passed | None:
        record = self.machine.noted(request_id, self.now)
        return None if record is None else Passed(record, self.first_tokens.get(request_id, 0))

    async def before(self, passage: Passage) -> Mapping[str, Before]:
        return together(self.machine.before(passage), self.store.before(passage, 3600 * 10**9))

    def live(self, request_id: str) -> LiveRequest | None:
        return self.open_requests.get(request_id)

    def jobs(self) -> FakeJobs:
        return self.fake_jobs

    def waits(self) -> WaitBooks:
        return self.wait_books

    def alerts(self) -> Alerting:
        return self.fake_alerts

    def bills(self) -> Bills:
        return self.fake_bills

    def keys(self) -> Keyring:
        return Keyring(self.store, lambda: NOW, lambda _key: None)
