"""The machine: every decision about who runs, in one place. `handle(event, now)` returns effects, in order.

A request takes two calls: `Arrived` (admit, queue, perhaps dispatch) and `Ended` (meter, release, dispatch the next); a
job likewise, `Submitted` and `JobEnded`. After every event the pool is dispatched until nobody who waits may run: no
slot stays idle while someone is allowed to use it, except what is kept for a tenant under its guarantee that waits for
more than is free, and within 20 % of the surplus for what is large or overdue (line, sites). Nothing that runs is ever
interrupted. What names an id that waits or runs already, or one that does neither, does nothing.

Deterministic: no clock, no randomness, no iteration over sets; the same events give the same effects.
"""

from typing import Final, cast

import msgspec

from commonpool.core import admission, records
from commonpool.core.admission import Refusal
from commonpool.core.effects import Effect, Fail, Refuse, Settle
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    DevicesChanged,
    Ended,
    Event,
    Granted,
    JobEnded,
    Produced,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Submitted,
)
from commonpool.core.model import (
    NS_PER_S,
    Job,
    Outcome,
    Policy,
    Reason,
    Replica,
    Request,
    TokenSource,
    Usage,
    UsageRecord,
    Wait,
)
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST, Entry, Flow, Spot
from commonpool.core.records import STATUS_CLIENT_GONE, STATUS_OF, STATUS_OF_END
from commonpool.core.sites import Devices, Running, Serving, Site
from commonpool.core.sizing import shares
from commonpool.core.state import State

ATTEMPTS_MAX: Final = 2
_COMPLETED: Final = Outcome.COMPLETED
_FAILED: Final = Outcome.FAILED
_CANCELLED: Final = Outcome.CANCELLED


class Machine:
    """The state of all pools, and what follows from each event."""

    def __init__(self, policy: Policy) -> None:
        self.state = State()
        self.state.configure(policy, 0)
        self._entries: dict[str, Entry] = {}
        self._seq = 0

    def handle(self, event: Event, now: int) -> list[Effect]:  # noqa: C901, PLR0912 - one branch an event
        """Take in one event; return what must be done about it. `now` never goes backwards."""
        effects: list[Effect] = []
        kind = type(event)  # the two that a request takes are told apart at once
        if kind is Arrived:
            self._arrived(cast("Arrived", event).request, now, effects)
        elif kind is Ended:
            self._ended(cast("Ended", event), now, effects)
        elif isinstance(event, Produced):
            self._produced(event)
        elif isinstance(event, Cancelled):
            self._cancelled(event.request_id, now, effects)
        elif isinstance(event, Submitted):
            self._submitted(event.job, now, effects)
        elif isinstance(event, JobEnded):
            self._job_ended(event, now, effects)
        elif isinstance(event, ReplicaReady):
            self._replica_ready(event.replica, now, effects)
        elif isinstance(event, ReplicaDraining):
            self._replica_draining(event.replica_id)
        elif isinstance(event, ReplicaLost):
            self._replica_lost(event.replica_id, now, effects)
        elif isinstance(event, Configured):
            self._reconfigured(event.policy, now, effects)
        elif isinstance(event, DevicesChanged):
            self._devices_changed(event, now, effects)
        elif isinstance(event, Granted):
            self._granted(event, now, effects)
        else:
            self._ticked(now, effects)
        return effects

    def waits_of(self, request_id: str, now: int) -> tuple[Wait, ...] | None:
        """What a request or job that waits has waited for until now, in order; None when nothing of that id waits."""
        entry = self._entries.get(request_id)
        return entry.flow.waits(entry.arrived, now) if entry is not None and entry.waiting else None

    # -- something arrives ---------------------------------------------------------------------------------------------

    def _arrived(self, request: Request, now: int, effects: list[Effect]) -> None:
        if request.id in self._entries:
            return
        self._seq += 1
        entry = Entry(request, self._seq, now)
        refusal = admission.admit(self.state, entry, request, now)
        if refusal is not None:
            self._refuse(entry, refusal, now, effects)
            return
        self._entries[request.id] = entry
        flow = entry.flow
        site = cast("Serving", flow.room)
        if not site.line.waiting and site.free_slots > 0:
            # Nobody waits: when it fits, the queue would only hand it back.
            surplus = not flow.node.entitled
            if not (surplus and site.quota.claimed):
                spot = site.fit(entry, now)
                if spot is not None:
                    if surplus:
                        site.line.straight_through(flow)
                    self._observe(flow, entry.ask, now)
                    self._start(site, spot, entry, surplus, now, effects)
                    return
        self._wait(entry, now, effects)

    def _submitted(self, job: Job, now: int, effects: list[Effect]) -> None:
        if job.id in self._entries:
            return
        self._seq += 1
        entry = Entry(job, self._seq, now)
        refusal = admission.admit_job(self.state, entry, job, now)
        if refusal is not None:
            self._refuse(entry, refusal, now, effects)
            return
        self._entries[job.id] = entry
        self._wait(entry, now, effects)

    def _wait(self, entry: Entry, now: int, effects: list[Effect]) -> None:
        """It waits, perhaps for no time at all."""
        flow = entry.flow
        site = cast("Site", flow.room)
        self._enqueue(entry)
        self._observe(flow, 0, now)
        if flow.length == 1:
            site.explain(flow, now)
        if site.spare() or site.quota.claimed:
            self._dispatch(site.quota.pool, now, effects)

    def _observe(self, flow: Flow, more: int, now: int) -> None:
        """What its tenant wants now: what runs, what waits, and `more`."""
        flow.account.forecast.observe(flow.node.use + flow.account.asked + more, now)

    def _enqueue(self, entry: Entry) -> None:
        flow = entry.flow
        flow.push(entry)
        flow.parked = False
        line = cast("Site", flow.room).line
        line.waiting += 1
        line.place(flow)

    def _unqueue(self, entry: Entry) -> None:
        flow = entry.flow
        flow.remove(entry)
        cast("Site", flow.room).line.waiting -= 1

    # -- dispatch ------------------------------------------------------------------------------------------------------

    def _dispatch(self, pool: str, now: int, effects: list[Effect]) -> None:
        """Give out what is free in a pool, until nobody who waits may run.

        1. Tenants under their guarantee, at every site. 2. The surplus, unless one of the first waits for room in the
        pool: then what frees next is earmarked for it, and nothing more is lent. Requests come before jobs, which are
        long, except for an overdue job.
        """
        quota = self.state.quotas[pool]
        devices = self.state.devices[pool]
        sites = self.state.sites_of[pool]
        quota.claimed = devices.claimed = ""
        devices.borrowing = False
        for site in sites:
            site.held = False
            if site.line.waiting:
                self._serve(site, now, effects, surplus=False)
        devices.borrowing = True
        if devices.line.waiting and devices.keeps(now):
            self._serve(devices, now, effects, surplus=True)
        if devices.line.waiting:  # jobs whose tenant is under its guarantee, and will be above it with them
            self._serve(devices, now, effects, surplus=False)
        for site in sites:
            if site.line.waiting and not quota.claimed:
                self._serve(site, now, effects, surplus=True)

    def _serve(self, site: Site, now: int, effects: list[Effect], *, surplus: bool) -> None:
        """Dispatch those whose turn it is at one site, one at a time."""
        line = site.line
        while line.waiting and site.spare() and not site.held:
            found = line.next_beyond(now, site) if surplus else line.next_within(now, site)
            if found is None:
                return
            entry, spot = found
            self._unqueue(entry)
            self._start(site, spot, entry, surplus, now, effects)

    def _start(self, site: Site, spot: Spot, entry: Entry, surplus: bool, now: int, effects: list[Effect]) -> None:
        flow = entry.flow
        node = flow.node
        entry.node = node
        entry.attempt += 1
        entry.dispatched = now
        if now > entry.arrived:
            entry.waits = flow.waits(entry.queued, now)
        entry.surplus = charged = surplus or (isinstance(site, Devices) and not site.owns(entry))
        site.occupy(spot, entry)
        site.quota.take(node, entry.ask)
        for quota, its, amount in entry.also:
            quota.take(its, amount)
        site.loans.took(node, entry, entry.ask, now)
        if charged:
            entry.charged = site.service(entry)
            flow.charge(entry.charged)
        self._replace(flow)
        if surplus:
            site.line.served(flow)
        site.turns += 1
        if flow.length and not flow.parked:
            site.explain(flow, now, fed=True)
        effects.append(site.begun(entry))

    def _replace(self, changed: Flow) -> None:
        """A tenant's use changed, and with it the place of each of its flows."""
        cast("Site", changed.room).line.place(changed)
        for flow in changed.others:
            if flow.length:
                cast("Site", flow.room).line.place(flow)

    def _unpark(self, freed: list[object], now: int) -> None:
        for flow in freed:
            if isinstance(flow, Flow):
                parked, flow.parked = flow.parked, False
                site = cast("Site", flow.room)
                site.line.place(flow)
                if parked and flow.length:
                    site.explain(flow, now)

    # -- something ends ------------------------------------------------------------------------------------------------

    def _ended(self, event: Ended, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(event.request_id)
        if entry is None or entry.waiting or entry.attempt != event.attempt:
            return
        request = entry.task
        if not isinstance(request, Request):
            return
        flow = entry.flow
        pool = entry.node.pool
        site = cast("Serving", flow.room)
        outcome, retry = event.outcome, event.retry
        usage = event.usage if outcome is _COMPLETED else self._measured(site, entry, request, event, now)
        tokens_in, tokens_out = usage.tokens_in, usage.tokens_out
        service = INPUT_COST * tokens_in + OUTPUT_COST * tokens_out
        if service and outcome is _COMPLETED:
            # What a request of this app produces, and how long this deployment takes over a token of service.
            ran_ns = now - entry.dispatched
            site.pace.learn(ran_ns // service)
            site.runs.learn(ran_ns)
            flow.learn(request.app, max(1, tokens_out // entry.sequences))
        if retry and outcome is _FAILED:
            site.doubt(entry.replica_id)
        freed = self._release(site, entry, service, now)
        if flow.account.bytes is not None:
            flow.account.bytes.take(event.bytes_out, now)
        record = records.of_request(
            entry,
            request,
            pool,
            entry.version,
            self.state.policy.prices,
            now,
            ran=True,
            outcome=outcome,
            status=event.status,
            usage=usage,
            first_token_at=event.first_token_at,
        )
        entry.failures += outcome is _FAILED
        spent = outcome is _FAILED and entry.failures >= ATTEMPTS_MAX
        again = retry and not spent and self._judge(entry) is None
        if not again:
            self._settle_tokens(entry, tokens_in + tokens_out, now)
        self._over(entry, record, retry, again, now, effects)
        if freed:
            self._unpark(freed, now)
        self._dispatch(pool, now, effects)
        if site.quota.pool != pool:  # the model has moved: slots are free in one pool, quota in another
            self._dispatch(site.quota.pool, now, effects)

    def _job_ended(self, event: JobEnded, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(event.job_id)
        if entry is None or entry.waiting or entry.attempt != event.attempt:
            return
        job = entry.task
        if not isinstance(job, Job):
            return
        held_ns = now - entry.dispatched
        if event.outcome is _COMPLETED:
            entry.flow.learn(job.app, held_ns)
        site = cast("Site", entry.flow.room)
        freed = self._release(site, entry, entry.ask * held_ns // NS_PER_S, now)
        status = STATUS_OF_END[event.outcome]
        record = records.of_job(
            entry, job, self.state.policy.prices, now, ran=True, outcome=event.outcome, status=status
        )
        self._over(entry, record, event.retry, event.retry and self._judge(entry) is None, now, effects)
        self._unpark(freed, now)
        self._dispatch(entry.node.pool, now, effects)

    def _release(self, site: Site, entry: Entry, service: int, now: int) -> list[object]:
        """Give back what it held: its place, its quota, its loans; correct what was charged in advance.

        Returns the flows that waited for room on its tenant's path.
        """
        flow = entry.flow
        site.vacate(entry, now)
        if isinstance(site, Serving) and entry.replica_id not in site.replicas:
            self.state.count_devices()  # it was lost, and this was the last on it
        pool = entry.node.pool
        freed = self.state.quotas[pool].give(entry.node, entry.ask)
        for quota, its, amount in entry.also:
            freed += quota.give(its, amount)
        self.state.loans[pool].gave(entry.node, entry, now)
        if entry.surplus:
            flow.charge(service - entry.charged)
        self._observe(flow, 0, now)
        self._replace(flow)
        return freed

    def _over(
        self, entry: Entry, record: UsageRecord, wanted: bool, again: bool, now: int, effects: list[Effect]
    ) -> None:
        """The record of an attempt, then another attempt or the end."""
        effects.append(Settle(record))
        if again:
            entry.again(now)
            self._enqueue(entry)
            if entry.flow.length == 1:
                cast("Site", entry.flow.room).explain(entry.flow, now)
            return
        del self._entries[entry.id]
        if wanted:
            effects.append(Fail(entry.id))

    def _produced(self, event: Produced) -> None:
        """It has produced more than was expected: its flow's counter says so before its end."""
        entry = self._entries.get(event.request_id)
        if entry is None or entry.waiting or not entry.surplus or not isinstance(entry.task, Request):
            return
        more = INPUT_COST * entry.tokens_in + OUTPUT_COST * event.tokens_out - entry.charged
        if more > 0:
            entry.charged += more
            entry.flow.charge(more)
            self._replace(entry.flow)

    def _settle_tokens(self, entry: Entry, tokens_used: int, now: int) -> None:
        """What was reserved of the tokens a minute becomes what was used."""
        tokens = entry.flow.account.tokens
        if tokens is not None and entry.tokens_reserved:
            tokens.take(tokens_used - entry.tokens_reserved, now)
        entry.tokens_reserved = 0

    def _measured(self, site: Serving, entry: Entry, request: Request, event: Ended, now: int) -> Usage:
        """The tokens to record. Work that failed has none; work cut before its engine told is estimated by its time."""
        usage = event.usage
        if event.outcome is _FAILED:
            return Usage(source=usage.source)
        if event.outcome is _CANCELLED and usage.source is TokenSource.ESTIMATED and site.pace.expected:
            served = (now - entry.dispatched) // site.pace.expected - INPUT_COST * usage.tokens_in
            most = request.sequences * site.shape.context_tokens
            return msgspec.structs.replace(usage, tokens_out=min(most, max(0, served // OUTPUT_COST)))
        return usage

    # -- something does not run ----------------------------------------------------------------------------------------

    def _cancelled(self, request_id: str, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(request_id)
        if entry is None or not entry.waiting:
            return
        entry.waits = entry.flow.waits(entry.arrived, now)
        self._drop(entry, now)
        effects.append(Settle(self._unserved(entry, Outcome.CANCELLED, STATUS_CLIENT_GONE, "", now)))
        self._dispatch(cast("Site", entry.flow.room).quota.pool, now, effects)

    def _refuse(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        effects.append(Refuse(entry.id, refusal.reason, refusal.message, refusal.retry_after_ns))
        task = entry.task
        there = task.model in self.state.sites if isinstance(task, Request) else task.pool in self.state.quotas
        if there and task.tenant in self.state.accounts:
            status = STATUS_OF[refusal.reason]
            effects.append(Settle(self._unserved(entry, Outcome.REFUSED, status, refusal.reason, now)))

    def _unserved(self, entry: Entry, outcome: Outcome, status: int, reason: str, now: int) -> UsageRecord:
        """The record of what was not dispatched."""
        task = entry.task
        prices = self.state.policy.prices
        if isinstance(task, Job):
            return records.of_job(entry, task, prices, now, ran=False, outcome=outcome, status=status, reason=reason)
        site = self.state.sites[task.model]
        return records.of_request(
            entry,
            task,
            site.quota.pool,
            site.version,
            prices,
            now,
            ran=False,
            outcome=outcome,
            status=status,
            reason=reason,
        )

    def _drop(self, entry: Entry, now: int) -> None:
        """It waits no more and will not run; who is behind it is looked at anew."""
        self._unqueue(entry)
        self._settle_tokens(entry, 0, now)
        entry.flow.parked = False
        cast("Site", entry.flow.room).line.place(entry.flow)
        self._observe(entry.flow, 0, now)
        del self._entries[entry.id]

    def _withdraw(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        """Refuse what had been taken: like any refused request it has consumed nothing."""
        entry.waits = entry.flow.waits(entry.arrived, now)
        self._drop(entry, now)
        account = entry.flow.account
        if isinstance(entry.task, Request):
            if account.requests is not None:
                account.requests.take(-1, now)
            if account.bytes is not None:
                account.bytes.take(-entry.task.bytes_in, now)
        self._refuse(entry, refusal, now, effects)

    # -- time passes ---------------------------------------------------------------------------------------------------

    def _ticked(self, now: int, effects: list[Effect]) -> None:
        for tenant, (_, until) in list(self.state.grants.items()):
            if until <= now:
                self._grant(tenant, 0)
                del self.state.grants[tenant]
        for serving in self.state.sites.values():
            serving.trust()
            self._expire(serving, now, effects)
        for site in self.state.all_sites():
            for flow in site.line.flows.values():
                if not flow.length:
                    continue
                if flow.parked:  # with time another may have come to its head, one that fits
                    flow.parked = False
                    site.line.place(flow)
                elif flow.fed:
                    flow.fed = False  # it moves on
                else:
                    site.explain(flow, now)
        for pool in self.state.quotas:
            self._dispatch(pool, now, effects)

    def _expire(self, site: Serving, now: int, effects: list[Effect]) -> None:
        """Refuse what has waited past all reason: past max_wait without a replica, or twice max_wait with one.

        Jobs are not refused: they wait for as long as it takes.
        """
        ready = site.ready
        for flow in site.line.flows.values():
            while flow.length:
                entry = flow.earliest()
                patience = entry.deadline - entry.arrived if ready else 0
                if entry.deadline + patience > now:
                    break
                self._withdraw(entry, _expired(entry, site.name, now, ready=ready), now, effects)

    # -- replicas and devices ------------------------------------------------------------------------------------------

    def _replica_ready(self, replica: Replica, now: int, effects: list[Effect]) -> None:
        site = self.state.sites.get(replica.model)
        if site is None or replica.id in site.replicas:
            return
        site.replicas[replica.id] = Running(replica)
        site.count_free_slots()
        self.state.count_devices()
        self._dispatch(site.quota.pool, now, effects)

    def _replica_draining(self, replica_id: str) -> None:
        for site in self.state.sites.values():
            if running := site.replicas.get(replica_id):
                running.draining = True
                site.count_free_slots()

    def _replica_lost(self, replica_id: str, now: int, effects: list[Effect]) -> None:
        for site in self.state.sites.values():
            if running := site.replicas.get(replica_id):
                running.draining = running.lost = True
                site.forget_if_idle(running)
                site.count_free_slots()
                self.state.count_devices()
                self._dispatch(site.quota.pool, now, effects)

    def _devices_changed(self, event: DevicesChanged, now: int, effects: list[Effect]) -> None:
        quota = self.state.quotas.get(event.pool)
        if quota is None:
            return
        quota.resize(max(0, event.milli_gpu))
        self.state.loans[event.pool].reconfigured(now)
        self._all_anew(now, effects)

    # -- a new policy --------------------------------------------------------------------------------------------------

    def _reconfigured(self, policy: Policy, now: int, effects: list[Effect]) -> None:
        self.state.configure(policy, now)
        for name, (elastic_cap, _) in list(self.state.grants.items()):
            if name in policy.tenants:
                self._grant(name, elastic_cap)
            else:
                del self.state.grants[name]
        for site in self.state.all_sites():
            for flow in site.line.flows.values():
                if tenant := policy.tenants.get(flow.tenant):
                    flow.repromise(tenant.max_wait_ns)
                for entry in tuple(flow.waiting()):
                    asked = entry.ask
                    refusal = self._judge(entry)
                    flow.resize(entry, asked)
                    if refusal is not None:
                        self._withdraw(entry, refusal, now, effects)
        self._all_anew(now, effects)
        self.state.prune()

    def _granted(self, event: Granted, now: int, effects: list[Effect]) -> None:
        if event.tenant not in self.state.policy.tenants:
            return
        if event.until > now and event.elastic_cap > 0:
            self.state.grants[event.tenant] = (event.elastic_cap, event.until)
            self._grant(event.tenant, event.elastic_cap)
        else:
            self.state.grants.pop(event.tenant, None)
            self._grant(event.tenant, 0)
        self._all_anew(now, effects)

    def _grant(self, tenant: str, elastic_cap: int) -> None:
        self.state.quotas[self.state.policy.tenants[tenant].pool].grant(tenant, elastic_cap)

    def _all_anew(self, now: int, effects: list[Effect]) -> None:
        """Quota changed under what waits: everybody is looked at again."""
        for site in self.state.all_sites():
            for flow in site.line.flows.values():
                flow.parked = False
                site.line.place(flow)
        for pool in self.state.quotas:
            self._dispatch(pool, now, effects)

    def _judge(self, entry: Entry) -> Refusal | None:
        """Whether what waits may go on waiting under the policy of now; what it takes is worked out anew."""
        task = entry.task
        entry.deadline = entry.arrived + entry.flow.account.max_wait_ns
        if isinstance(task, Job):
            refusal = admission.known_job(self.state, task)
            entry.node = entry.flow.node
            return admission.size_job(self.state, entry, task) if refusal is None else refusal
        refusal = admission.known(self.state, task)
        if refusal is not None:
            return refusal
        site = self.state.sites[task.model]
        entry.kv, entry.ask = shares(task.tokens_in, task.tokens_out_max, task.sequences, site.shape)
        return admission.never_fits(task, site.shape, entry.kv, entry.ask, entry.flow.node.most)


def _expired(entry: Entry, model: str, now: int, *, ready: bool) -> Refusal:
    waited = (now - entry.arrived) / NS_PER_S
    if not ready:
        return Refusal(
            Reason.NO_REPLICA,
            f"No replica of {model} was ready for {waited:.0f} s. Try again later, or ask the operator.",
            admission.RETRY_AFTER_MIN_NS,
        )
    return Refusal(
        Reason.PROMISE,
        f"No capacity came free for tenant {entry.flow.tenant} in {waited:.0f} s, twice its max_wait.",
        admission.RETRY_AFTER_MIN_NS,
    )
