"""What the alerts of the product are made of: its parts asked for facts, what people see of them, and their metrics."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from commonpool.access import tls
from commonpool.access.scope import Scope
from commonpool.api.operations import ConflictError, Guarantees, UnavailableError
from commonpool.api.wire import alerts as wire
from commonpool.api.wire.status import ReplicaStatus
from commonpool.app.replicas import running
from commonpool.config import Config
from commonpool.control.alerting import rules
from commonpool.control.alerting.courier import Courier, Outside, UndeliveredError
from commonpool.control.alerting.rules import Away, Booked, Ends, Facts, Running, Waiting
from commonpool.control.alerting.watch import Alerts
from commonpool.control.nodes import Listening
from commonpool.core import views
from commonpool.core.alerts import Trouble
from commonpool.core.burn import Promise
from commonpool.core.firing import Episode, Pending
from commonpool.core.model import NS_PER_HOUR, NS_PER_S
from commonpool.core.said import Said
from commonpool.core.state import State
from commonpool.core.telling import Silence
from commonpool.observe.exposition import Family
from commonpool.store.alerts import AlertStore
from commonpool.store.ledger import Reconciliation

CERTIFICATES_EVERY_NS: Final = NS_PER_HOUR
LISTED_MAX: Final = 2000


class Known(Protocol):
    """Whoever knows the parts of the product; each answers from memory."""

    def now_ns(self) -> int:
        """The time, since the epoch."""

    def config(self) -> Config:
        """The configuration in force."""

    def replicas(self) -> Sequence[ReplicaStatus]:
        """All replicas."""

    def guarantees(self) -> Guarantees:
        """What is not used of them."""


class Closed(Protocol):
    """The books of the hours that are closed."""

    @property
    def troubles(self) -> Sequence[Trouble]:
        """What is wrong with them."""

    @property
    def last(self) -> Sequence[Reconciliation]:
        """The last closed hour of each pool."""


class Lookout:
    """Collects the facts. `state` is the core's, `books` the loop that closes hours, `away` says what cannot be kept,
    `gateways` where those of other processes listen, `behind_ns` how far the machine's clock was behind.
    """

    def __init__(
        self,
        known: Known,
        *,
        state: Callable[[], State],
        books: Closed,
        away: Callable[[], Away],
        promises: Callable[[], Sequence[Promise]],
        gateways: Callable[[], Sequence[Listening]],
        behind_ns: int,
    ) -> None:
        self._known = known
        self._state = state
        self._books = books
        self._away = away
        self._promises = promises
        self._gateways = gateways
        self._behind_ns = behind_ns
        self._certificates: tuple[Ends, ...] = ()
        self._read: tuple[object, int] = (None, 0)

    async def look(self) -> Facts:
        """The facts now; what lies in files is read anew every hour, and when the listeners have changed."""
        listen, now = self._known.config().listen, self._known.now_ns()
        known, at = self._read
        if known != listen or now - at >= CERTIFICATES_EVERY_NS:
            self._certificates = await asyncio.to_thread(certificates, self._known.config(), now)
            self._read = listen, now
        return self.facts()

    def facts(self) -> Facts:
        """The facts now."""
        state, now, config = self._state(), self._known.now_ns(), self._known.config()
        tenants = views.tenants(state)
        budgets = {name: views.budget(state, name, now) for name in config.policy.tenants}
        return Facts(
            now_ns=now,
            currency=config.currency,
            tenants=tenants,
            pools=[pool for pool in views.pools(state) if pool.pool in config.policy.pools],
            models=views.models(state),
            promises=self._promises(),
            waiting=list(waiting(state, now)),
            overdue=overdue(state, now) if any(each.due for each in tenants) else {},
            running=self._running(config),
            books=self._books.troubles,
            booked=[Booked(each.pool, each.hour_ns + NS_PER_HOUR) for each in self._books.last],
            away=self._away(),
            budgets={name: view for name, view in budgets.items() if view is not None},
            underuse=self._known.guarantees().underuse(),
            missing=[(node.pool, name) for name, node in config.nodes.items() if name not in state.nodes],
            stray=[
                (pool, node, holder)
                for pool, inventory in state.inventories.items()
                for holder, node in inventory.stray()
            ],
            gateways=self._gateways(),
            certificates=self._certificates,
            behind_ns=self._behind_ns,
        )

    def _running(self, config: Config) -> list[Running]:
        pools = {name: model.pool for name, model in config.models.items()}
        return [running(each, pools.get(each.model, "")) for each in self._known.replicas()]


def waiting(state: State, now: int) -> Iterator[Waiting]:
    """The oldest request of each tenant in the queue of each model."""
    for model, site in state.sites.items():
        for tenant, flow in site.line.flows.items():
            if flow.length:
                oldest = [each.deadline for lane in flow.every() if (each := lane.oldest) is not None]
                max_wait_ns = flow.account.max_wait_ns
                if oldest:
                    yield Waiting(tenant, model, site.quota.pool, max_wait_ns - (min(oldest) - now), max_wait_ns)


def overdue(state: State, now: int) -> dict[str, int]:
    """By lender, the milli_gpu that it needs back and that were expected back before now, or of which nobody knows."""
    found: dict[str, int] = {}
    for loan in views.loans(state):
        if loan.due and (loan.return_ns is None or loan.return_ns < now):
            found[loan.lender] = found.get(loan.lender, 0) + loan.milli_gpu
    return found


def certificates(config: Config, now: int) -> tuple[Ends, ...]:
    """When those of the listeners end. Blocks."""
    found = []
    for name, files in (("gateway", config.listen.gateway_tls), ("control", config.listen.control_tls)):
        if files is not None:
            try:
                found.append(Ends(name, int(tls.expires(f"listen.{name}_tls", files, now / NS_PER_S) * NS_PER_S)))
            except tls.TlsError as error:
                found.append(Ends(name, 0, str(error)))
    return tuple(found)


class Alerting:
    """The alerts of the product, and what the admin API does with them (`api.operations.Alerts`)."""

    def __init__(self, known: Known, store: AlertStore, lookout: Lookout, courier: Courier | None = None) -> None:
        self._known = known
        self._lookout = lookout
        self._alerts = Alerts(
            store,
            Outside(known.config().outgoing) if courier is None else courier,
            clock=known.now_ns,
            config=known.config,
            facts=self._lookout.look,
        )

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        await self._alerts.run()

    async def stop(self) -> None:
        """Nothing is sent any more."""
        await self._alerts.stop()

    def warnings(self) -> dict[str, Said | None]:
        """The sentences of what is wrong: of all that needs no time to be so, and of the rest what fires."""
        active = self._alerts.firing.active
        found = rules.troubles(self._lookout.facts())
        wrong = [each for each in found if not each.condition.for_ns or each.id in active]
        wrong += [each.trouble for each in active.values() if each.trouble.name == "channel_failing"]
        return {each.sentence: each.said for each in wrong}

    def families(self) -> Iterator[Family]:
        """How many alerts fire, and how telling goes."""
        firing = Counter(_labels(each.trouble) for each in self._alerts.firing.active.values())
        labels = ("alert", "severity")
        yield Family("alerts", "gauge", "Alerts that fire now.", labels, sorted(firing.items()))
        labels = ("channel", "outcome")
        told = sorted(self._alerts.outcomes.items())
        yield Family("alert_messages", "counter", "Messages to channels, by how it went.", labels, told)

    def listing(self, scope: Scope) -> wire.Alerts:
        """Those of the tenants in the scope, and the channels that are theirs."""
        found = [each for each in self._alerts.known() if each.trouble.tenant in scope]
        channels = self._known.config().alerts.channels
        states = self._alerts.channels()
        return wire.Alerts(
            tuple(self._shown(each, scope) for each in found[:LISTED_MAX]),
            tuple(
                wire.AlertChannel(
                    name=name,
                    kind=channel.kind,
                    tenant=channel.tenant,
                    severity=channel.severity.value,
                    failing_since_ns=states[name].failing_since_ns,
                    error=states[name].why,
                    taken_ns=states[name].taken_ns,
                )
                for name, channel in channels.items()
                if channel.tenant in scope
            ),
        )

    def tenant_of(self, alert: str) -> str | None:
        """Whose it is, "" for the platform's; None where there is no such alert."""
        trouble = self._alerts.find(alert)
        return None if trouble is None else trouble.tenant

    async def silence(self, silence: Silence) -> None:
        """It holds when this returns. ConflictError where there are too many."""
        if not self._alerts.silences_left:
            raise ConflictError("there are too many silences; let some end first")
        await self._alerts.silence(silence)

    async def end_silence(self, alert: str, tenant: str) -> bool:
        """Whether there was one of this tenant, "" for everybody's; it holds no more when this returns."""
        return await self._alerts.end_silence(alert, tenant)

    async def test(self, channel: str) -> None:
        """Send something through a channel of the configuration. UnavailableError where it is not taken."""
        try:
            await self._alerts.test(channel)
        except UndeliveredError as error:
            raise UnavailableError(f"channel {channel} did not take it: {error}") from None

    def _shown(self, known: Episode | Pending, scope: Scope) -> wire.Alert:
        """An alert, and what keeps the channels of whoever asks from being told of it."""
        trouble, now = known.trouble, self._known.now_ns()
        silence = self._alerts.silences.of(trouble.id, "" if scope.platform else trouble.tenant, now)
        foreign = silence is not None and silence.tenant not in scope
        over = isinstance(known, Episode) and known.ended_ns is not None
        return wire.Alert(
            id=trouble.id,
            name=trouble.name,
            severity=trouble.condition.severity.value,
            state="pending" if isinstance(known, Pending) else "resolved" if over else "firing",
            tenant=trouble.tenant,
            pool=trouble.pool,
            about=dict(trouble.about),
            sentence=trouble.sentence,
            advice=trouble.condition.advice,
            since_ns=known.since_ns,
            fired_ns=known.fired_ns if isinstance(known, Episode) else None,
            ended_ns=known.ended_ns if isinstance(known, Episode) else None,
            silenced_until_ns=None if silence is None else silence.until_ns,
            silenced_by="" if silence is None or foreign else silence.by,
            said=trouble.said,
            gone=not over and trouble.id in self._alerts.firing.gone,
        )


def _labels(trouble: Trouble) -> tuple[str, str]:
    return trouble.name, trouble.condition.severity.value
