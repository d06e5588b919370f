"""The product as one object: its parts wired together, its life, and what the admin API operates on.

Start: state folder and journal, listeners, core, then engines; what fails is one sentence. Stop: no new requests,
streams finish until the deadline, engines stop, every record reaches the store.
"""

import asyncio
import functools
import gc
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog
from starlette.routing import BaseRoute

from commonpool import __version__
from commonpool.access import policy_files
from commonpool.access.audit import AuditLog
from commonpool.access.callers import Caller, by_admin_key, by_data_key
from commonpool.access.people import People
from commonpool.access.policy import Authority
from commonpool.access.policy_files import Policies
from commonpool.access.secrets import SecretsError, Vault, masters, salt_key
from commonpool.access.web import Web
from commonpool.api import routes, views
from commonpool.api.operations import Passed
from commonpool.api.server import Server
from commonpool.api.wire.advice import Advised
from commonpool.api.wire.nodes import Nodes, PlaceQuestion
from commonpool.api.wire.requests import LiveRequest
from commonpool.api.wire.status import ReplicaStatus, Status
from commonpool.app import listening, readiness, replicas, telemetry
from commonpool.app.advising import Advisor, in_process
from commonpool.app.alerts import Alerting, Lookout
from commonpool.app.billing import Bills
from commonpool.app.clock import Clock
from commonpool.app.feed import Feed
from commonpool.app.guarantees import Guarantees
from commonpool.app.house import House, LocalHouse
from commonpool.app.keys import Keyring, tell
from commonpool.app.recovery import Recovery, noted_until
from commonpool.app.revisions import Revisions
from commonpool.app.tasks import Tasks
from commonpool.app.telemetry import Telemetry
from commonpool.config import Config, Sources
from commonpool.config.billing import rates
from commonpool.config.structs import Address
from commonpool.control.alerting.rules import Away
from commonpool.control.books import Books, Scope
from commonpool.control.budgets import Budgets
from commonpool.control.held import Held
from commonpool.control.jobs import Jobs
from commonpool.control.later import Later
from commonpool.control.prompts import Prompts
from commonpool.control.replicas import StartError, Supervisor
from commonpool.control.seat import Told
from commonpool.control.waits import WaitBooks
from commonpool.core import moves, pictures
from commonpool.core import views as core_views
from commonpool.core.english import english
from commonpool.core.hints import Hint
from commonpool.core.machine import Machine
from commonpool.core.model import NS_PER_S, UsageRecord
from commonpool.core.said import Said
from commonpool.core.standing import Before, Passage, Standing, together
from commonpool.core.trial import Trial
from commonpool.gateway.caches import Caches
from commonpool.gateway.desk import CoreDesk
from commonpool.gateway.later import Errands
from commonpool.gateway.rates import rate_headers
from commonpool.observe import gauges
from commonpool.observe.waits import WINDOW_NS, Waits
from commonpool.store.audit import AuditEntry
from commonpool.store.contract import Filters, Key, LoanRow, Place, UsageTable
from commonpool.store.journal import Journal
from commonpool.store.keys import NewKey
from commonpool.store.opening import open_store
from commonpool.store.writer import Writer

TICK_S = 1.0
FLUSH_S = 2.0  # how long a question waits for the newest records to reach the store
# After so many new objects the garbage collector looks for cycles. At Python's 700 it goes through the newest of the
# queue again and again and finds none: with many tenants that is a fifth of a decision (docs/results/core.md).
COLLECT_EVERY = 50_000

log = structlog.get_logger()
T = TypeVar("T")


class Started(msgspec.Struct, frozen=True):
    """What is running, for whoever announces it. `new_keys` are shown this once: only a first start makes some.

    `local`: commands on this machine need no key.
    """

    gateway: str
    control: str
    models: tuple[str, ...]
    tenants: tuple[str, ...]
    new_keys: tuple[NewKey, ...]
    warnings: tuple[str, ...]
    local: bool = True


class Product:
    """Everything that runs, and the operations on it that the admin API offers (`api.operations.Operations`)."""

    def __init__(
        self,
        sources: Sources,
        config: Config,
        extra_routes: Sequence[BaseRoute] = (),
        house: House | None = None,
    ) -> None:
        house = LocalHouse() if house is None else house
        self._house = house
        self._new_keys: tuple[NewKey, ...] = ()
        self._tasks = Tasks()
        self._gateway_port = self._control_port = 0
        # 1. What is kept, and who may come in.
        self._authority = Authority(policy_files.load(config.access.policies))
        self._store = open_store(config)
        try:
            self._journal = Journal(config.state / "journal")
            noted = (noted_until(self._store, pool) for pool in config.policy.pools)
            self._clock = Clock(max(self._journal.left_until(), *noted))
            self._vault, caches = self._secrets(config)
        except BaseException:
            self._store.close()
            raise
        self._started_ns = self._clock()
        self._feed = Feed(f"{self._started_ns:x}")
        self._advisor = Advisor(self, in_process)
        self._writer = Writer(self._journal, self._store, report=log.warning)
        self._audit = AuditLog(self._store, self._clock, lambda head: log.info("audit log", head=str(head)))
        self._identity = house.identity(self._store.list_keys(), self._clock)
        self._revisions = Revisions(self._store, self._clock, sources, config)
        config = self._revisions.config
        self._keyring = Keyring(self._store, self._clock, self._take_up)
        self._people = People(self._store, self._clock, lambda: self.config().access, web=Web(config.outgoing))
        # 2. Who decides, and who watches.
        self._telemetry = Telemetry(config.policy.tiers)
        self._meter = self._telemetry.meter
        self._waits = Waits()
        self._desk = CoreDesk(Machine(config.policy), self._clock, self._journal, self._seen, house.soon(), caches)
        self._recovery = Recovery(self._store, self._writer, self._desk, house, self._started_ns)
        self._guarantees = Guarantees(self._store, self._desk, self._clock)
        self._held = Held(self._desk.note, self._clock, lambda: self.config().policy.hour_offset_ns)
        self._budgets = Budgets(
            self._store,
            clock=self._clock,
            config=self.config,
            tell=self._desk.spent,
            flush=lambda: self._writer.flush(FLUSH_S),
        )
        self._books = Books(
            self._store, clock=self._clock, scope=self._scope, flush=lambda: self._writer.flush(FLUSH_S)
        )
        self._bills = Bills(self._store, self.config, self._clock, self._flush)
        self._wait_books = WaitBooks(
            self._store, clock=self._clock, policy=lambda: self.config().policy, flush=self._flush
        )
        # 3. Who serves.
        self._prompts = Prompts(self._store, self._vault, self._clock, self._log_prompts)
        self._later = Later(
            self._store,
            self._vault,
            self._desk,
            self._clock,
            self._tasks.spawn,
            attempts=self.record,
            settled=self.recovered,
        )
        self._gateway = house.data_plane(
            config,
            self._desk,
            self._identity,
            clock=self._clock,
            monotonic=time.monotonic_ns,
            ready=self.ready,
            limits=self._limits,
            failed=lambda _status, code, count=1: self._meter.refused("", code, count),
            slowed=self._meter.slowed,
            listener=self._prompts,
            later=Errands(self._later, self._desk),
        )
        self._control = Server(routes.application(self, extra_routes), config.listen.control_tls, config.timeouts)
        self._supervisor = Supervisor(
            config,
            self._clock,
            Told(self._desk.replica_ready, self._desk.replica_lost),
            self._held,
            in_flight=lambda replica_id: core_views.in_flight(self._desk.machine.state, replica_id),
            backends=house.backends(config),
        )
        self._desk.replicas = self._supervisor
        self._nodes = house.nodes(config, self._desk)
        self._jobs = Jobs(
            self._store,
            self._desk,
            house.jobs(config),
            self._clock,
            self._tasks.spawn,
            self._held,
            new_id=lambda: f"job-{secrets.token_hex(5)}",
        )
        lookout = Lookout(
            self,
            state=lambda: self._desk.machine.state,
            books=self._books,
            away=self._away,
            promises=lambda: self._wait_books.promises,
            gateways=house.listening,
            behind_ns=self._clock.behind_ns,
        )
        self._alerting = Alerting(self, self._store, lookout)
        self._measure()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, then bring the engines up; returns when every model has a ready replica, or cannot."""
        config = self.config()
        self._house.check(config)
        self._writer.start()
        for key in self._store.list_keys():
            tell(self._desk, key)
        self._new_keys = self._keyring.first(config)
        self._guarantees.recall_demand()
        await self._budgets.look()
        self._later.begin()  # who asks for an answer of before finds it
        listen = config.listen
        self._gateway_port = await listening.listen(self._gateway.start, listen.gateway, "listen.gateway")
        self._control_port = await listening.listen(self._start_control, listen.control, "listen.control")
        self._supervisor.check(self.config())
        await self._nodes.look()
        self._guarantees.recall_releases()
        await self._supervisor.adopt()
        await self._jobs.start()
        await self._nodes.look()  # what the jobs of before use is ours
        self._prompts.begin()
        self._tasks.spawn(self._prompts.run())
        self._tasks.spawn(self._later.run())
        self._tasks.spawn(self._audit.run())
        self._tasks.spawn(self._tick())
        self._tasks.spawn(self._nodes.watch())
        self._tasks.spawn(self._guarantees.run())
        self._tasks.spawn(self._recovery.run())
        self._tasks.spawn(self._books.run())
        self._tasks.spawn(self._wait_books.run())
        self._tasks.spawn(self._budgets.run())
        self._tasks.spawn(self._alerting.run())
        self._desk.tick()
        await readiness.first_start(self._desk.machine.state)
        gc.freeze()  # what is there now stays
        gc.set_threshold(COLLECT_EVERY)

    async def _start_control(self, address: Address) -> int:
        await self._control.start(address.host, address.port)
        return self._control.port

    async def stop(self, at_once: asyncio.Event) -> None:
        """Drain and stop everything; when `at_once` is set, on the way too, without waiting for anyone."""
        drain_ns = self.config().timeouts.drain_ns
        if self._desk.open_requests and not at_once.is_set():
            log.info(
                "stopping: running requests finish first, Ctrl-C again stops at once",
                requests=self._desk.open_requests,
                within_s=drain_ns // NS_PER_S,
            )
        draining = asyncio.ensure_future(self._gateway.drain(drain_ns))
        hurry = asyncio.ensure_future(at_once.wait())
        either: set[asyncio.Future[Any]] = {draining, hurry}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            draining.cancel()
            await self._gateway.drain(0)
        hurry.cancel()
        await self._gateway.close()
        await self._later.close()
        await self._alerting.stop()  # what ends from now on is meant to
        await self._jobs.close()
        self._desk.replicas = None  # what ends now is not replaced
        await self._supervisor.close()
        self._feed.close()
        await self._control.stop()
        await self._advisor.close()
        await self._people.close()
        await self._prompts.write()
        await self._audit.write(all_of_it=True)
        await self._guarantees.keep_demand()
        self._desk.tick()  # the last try for what could not be written
        self._held.note_all()
        self._desk.close()
        await self._tasks.cancel()
        await self._books.stop()
        await asyncio.to_thread(self._writer.close)
        self._store.close()

    def started(self) -> Started:
        config, broken = self.config(), readiness.broken(self._desk.machine.state)
        listen = config.listen
        return Started(
            gateway=self._gateway_url(),
            control=listening.url(listen.control.host, self._control_port, listen.control_tls),
            models=tuple(config.models),
            tenants=tuple(config.policy.tenants),
            new_keys=self._new_keys,
            warnings=(*self._warnings(), *(f"{said} It is tried again." for said in broken)),
            local=config.access.local,
        )

    def _secrets(self, config: Config) -> tuple[Vault, Caches]:
        """What seals, and what salts. Raises StartError."""
        try:
            keys = masters(config)
            return Vault(self._store, keys, self._clock), Caches(salt_key(keys.now, config.state))
        except SecretsError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            message = f"The salt of prompt caches cannot be kept in {config.state}: {error.strerror or error}."
            raise StartError(message) from error

    def _log_prompts(self, tenants: frozenset[str]) -> None:
        self._gateway.log_prompts(tenants)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._desk.tick()
            self._held.tick()
            self._feed.look(self._desk.machine.state, self._clock())

    def _scope(self) -> Scope:
        config = self.config()
        return Scope(
            pools=tuple(config.policy.pools),
            offset_ns=config.policy.hour_offset_ns,
            noted_until=self._desk.noted_until if self._recovery.done else 0,
            rates=functools.partial(rates, config),
            retention_ns=config.billing.retention_ns,
        )

    # -- what the parts ask --------------------------------------------------------------------------------------------

    def _seen(self, record: UsageRecord) -> None:
        self._meter.record(record)
        self._waits.record(record, self._clock())

    def _gateway_url(self) -> str:
        listen = self.config().listen
        at = self._house.gateway(Address(listen.gateway.host, self._gateway_port))
        return listening.url(at.host, at.port, listen.gateway_tls)

    def _limits(self, tenant: str, app: str, key: str) -> bytes:
        """The rate-limit headers of an answer: of its tenant, app and key, the tightest; empty where none has any."""
        requests, tokens = core_views.rates(self._desk.machine.state, tenant, self._clock(), app, key)
        return (rate_headers(b"requests", requests) if requests else b"") + (
            rate_headers(b"tokens", tokens) if tokens else b""
        )

    def _measure(self) -> None:
        """What is measured at each scrape."""
        machine, clock, add = self._desk.machine, self._clock, self._telemetry.add
        add(lambda: gauges.families(machine.state, clock(), self._guarantees.underuse()))
        add(lambda: telemetry.replicas(self.replicas(), self._supervisor.status(), self.config().models, clock()))
        add(lambda: telemetry.gateways(self._house.listening()))
        add(lambda: telemetry.keeping(self._journal, self._writer))
        add(lambda: telemetry.later(self._later.kept, self.config().policy.tenants))
        add(lambda: telemetry.books(self._books, clock()))
        add(lambda: telemetry.decided(self._feed.decisions))
        add(lambda: telemetry.build(self.config().currency))
        add(self._alerting.families)
        add(self._house.families)

    def _away(self) -> Away:
        audit = self._audit
        found = (
            self._journal.trouble,
            self._writer.alarm,
            audit.trouble,
            audit.tampered,
            self._prompts.trouble,
            self._later.trouble,
        )
        return Away(*(said or "" for said in found))

    def _warnings(self) -> dict[str, Said | None]:
        """What is not good, each sentence with its name, where it has one."""
        notes = {english(note): note for note in (*self._revisions.notes, *self._house.notes(self.config()))}
        return {**dict.fromkeys(self.config().warnings), **notes, **self._alerting.warnings()}

    def _budgets_now(self) -> dict[str, core_views.BudgetView]:
        """Of the tenants that have one."""
        state, now = self._desk.machine.state, self._clock()
        found = {name: core_views.budget(state, name, now) for name in self.config().policy.tenants}
        return {name: view for name, view in found.items() if view is not None}

    # -- operations ----------------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._clock()

    async def by_key(self, authorization: bytes, peer: str | None) -> Caller | None:
        principal = self._identity.identify(authorization, peer)
        if principal is None:
            return None
        if principal.scope == "data":
            return by_data_key(principal.key_id, principal.tenant, principal.app, principal.tier or "")
        if principal.account:
            return await self._people.service(principal.account)
        return by_admin_key(principal.key_id, principal.role, principal.tenant)

    def people(self) -> People:
        return self._people

    async def remove_account(self, name: str) -> tuple[str, ...]:
        return await self._keyring.revoke_with(lambda: self._people.accounts.remove(name), self._identity.revoke)

    def authority(self) -> Authority:
        return self._authority

    def audit(self) -> AuditLog:
        return self._audit

    async def audited(
        self, filters: Filters, since_ns: int, until_ns: int, before: int | None, limit: int
    ) -> Sequence[AuditEntry]:
        await self._audit.write()
        return await asyncio.to_thread(self._store.audit, filters, since_ns, until_ns, before, limit)

    def status(self) -> Status:
        state = self._desk.machine.state
        now = self._clock()

        warnings = self._warnings()
        return Status(
            version=__version__,
            revision=self.config().policy.revision,
            started_ns=self._started_ns,
            now_ns=now,
            ready=self.ready()[0],
            pools=views.pools(core_views.pools(state), self.config().policy.pools),
            tenants=views.tenants(
                core_views.tenants(state),
                lambda tenant: self._waits.quantiles(tenant, now),
                self._budgets_now(),
                self.config().currency,
            ),
            replicas=self.replicas(),
            models=views.models(core_views.models(state)),
            loans=views.loans(core_views.loans(state), now, self._feed.lent_since),
            warnings=tuple(warnings),
            devices=pictures.devices(state),
            jobs=pictures.jobs(state),
            resources=pictures.resources(state),
            gateway=self._gateway_url(),
            said={sentence: said for sentence, said in warnings.items() if said is not None},
            waits_since_ns=max(self._started_ns, now - WINDOW_NS),
        )

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(replicas.shown(self._desk.machine.state, self._supervisor.status()))

    def ready(self) -> tuple[bool, str]:
        return readiness.ready(self._desk.machine.state, self._journal)

    async def metrics(self) -> bytes:
        return await self._telemetry.scrape()

    def config(self) -> Config:
        return self._revisions.config

    def sources(self) -> Sources:
        return self._revisions.sources

    async def apply(self, sources: Sources, config: Config, policies: Policies, revision: int) -> None:
        """Keep it, then decide by it; replicas follow in the background. Nothing is changed when keeping fails."""

        async def begin(config: Config) -> None:
            self._authority = Authority(policies)
            self._supervisor.configure(config)
            self._desk.configure(config.policy)
            self._meter.configure(config.policy.tiers)
            self._gateway.reconfigure(config)
            await self._nodes.configure(config)

        await self._revisions.apply(sources, config, revision, check=self._check, begin=begin)

    def _check(self, config: Config) -> None:
        self._house.check(config)
        self._supervisor.check(config)

    def grant(self, tenant: str, elastic_cap: int, until_ns: int) -> None:
        log.info("granted", tenant=tenant, elastic_cap_milli_gpu=elastic_cap, until_ns=until_ns)
        self._desk.granted(tenant, elastic_cap, until_ns)

    def nodes(self) -> Nodes:
        return views.nodes(self._desk.machine.state, self._clock())

    def place(self, question: PlaceQuestion) -> Trial:
        return views.place(self._desk.machine.state, question, self._clock())

    def hints(self) -> Sequence[Hint]:
        machine = self._desk.machine
        return moves.worthwhile(machine.state, frozenset(machine.savers), self._clock())

    def advice(self) -> Advised:
        return self._advisor.look()

    def guarantees(self) -> Guarantees:
        return self._guarantees

    def prompts(self) -> Prompts:
        return self._prompts

    async def rotate_secrets(self) -> int:
        count = await asyncio.to_thread(self._vault.rotate)
        log.info("data keys wrapped anew", count=count)
        return count

    def jobs(self) -> Jobs:
        return self._jobs

    def waits(self) -> WaitBooks:
        return self._wait_books

    def alerts(self) -> Alerting:
        return self._alerting

    def bills(self) -> Bills:
        return self._bills

    async def usage(self, by: Sequence[str], since_ns: int, until_ns: int, filters: Filters) -> UsageTable:
        return await asyncio.to_thread(self._after_flush, lambda: self._store.usage(by, since_ns, until_ns, filters))

    async def loans(self, since_ns: int, until_ns: int, tenants: Sequence[str] | None) -> Sequence[LoanRow]:
        return await asyncio.to_thread(self._after_flush, lambda: self._store.loans(since_ns, until_ns, tenants))

    async def record(self, request_id: str) -> Sequence[UsageRecord]:
        return await asyncio.to_thread(self._after_flush, lambda: self._store.record(request_id))

    async def records(
        self, since_ns: int, until_ns: int, after: Place | None, limit: int, filters: Filters, *, newest: bool = False
    ) -> Sequence[UsageRecord]:
        return await asyncio.to_thread(
            self._after_flush,
            lambda: self._store.records(since_ns, until_ns, after, limit, filters, newest=newest),
        )

    async def arrival(self, since_ns: int, until_ns: int, number: int, *, newest: bool = False) -> int | None:
        return await asyncio.to_thread(self._store.arrival, since_ns, until_ns, number, newest=newest)

    def feed(self) -> Feed:
        return self._feed

    def standing(self, request_id: str) -> Standing | None:
        return self._desk.machine.standing(request_id, self._clock())

    async def running(self, request_id: str) -> Passed | None:
        record = self._desk.machine.noted(request_id, self._clock())
        if record is None:
            return None
        return Passed(record, await self._house.first_token_at(self._desk, request_id))

    def recovered(self) -> bool:
        return self._recovery.done

    async def before(self, passage: Passage) -> Mapping[str, Before]:
        open_now = self._desk.machine.before(passage)
        longest_ns = max(2 * tenant.max_wait_ns for tenant in self.config().policy.tenants.values())
        found = await asyncio.to_thread(self._after_flush, lambda: self._store.before(passage, longest_ns))
        return together(open_now, found)

    def live(self, request_id: str) -> LiveRequest | None:
        request = self._desk.open_request(request_id)
        if request is None:
            return None
        return views.live(request, self._desk.machine.waits_of(request_id, self._clock()))

    def keys(self) -> Keyring:
        return self._keyring

    def _take_up(self, key: Key) -> None:
        """A key that was made or has changed: its limits are known before anything can come with it."""
        tell(self._desk, key)
        self._identity.add(key)

    def _after_flush(self, question: Callable[[], T]) -> T:
        self._flush()
        return question()

    def _flush(self) -> bool:
        return self._writer.flush(FLUSH_S)
