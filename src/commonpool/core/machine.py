"""The machine: every decision about who runs, in one place. `handle(event, now)` returns effects, in order.

A request takes two calls: `Arrived` (admit, queue, perhaps dispatch) and `Ended` (meter, release, dispatch the next); a
job likewise, `Submitted` and `JobEnded`. After every event what is free is given out (dispatch). Nothing that runs is
ever interrupted. What names an id that waits or runs already, or one that does neither, does nothing.

Deterministic: no clock, no randomness, no iteration over sets; the same events give the same effects.
"""

from typing import Final, cast

import msgspec

from commonpool.core import admission, reclaim, records, replicas
from commonpool.core.admission import Refusal
from commonpool.core.devices import Devices
from commonpool.core.dispatch import Turns
from commonpool.core.effects import Effect, Fail, Recall, Refuse, Settle
from commonpool.core.entries import Entry, holds
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    DevicesChanged,
    Ended,
    Event,
    Granted,
    HostLoad,
    JobEnded,
    JobResumed,
    KeyLimited,
    KeyRevoked,
    NodeLost,
    NodeSeen,
    Produced,
    Recalled,
    Released,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Resumed,
    Spent,
    Submitted,
    Ticked,
)
from commonpool.core.limits import Tally
from commonpool.core.model import (
    LATER,
    NS_PER_S,
    RECALLED,
    Cause,
    Fault,
    Job,
    Outcome,
    Policy,
    Reason,
    Replica,
    Request,
    UsageRecord,
    Wait,
)
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST, Flow
from commonpool.core.records import STATUS_CLIENT_GONE, STATUS_OF, STATUS_OF_END
from commonpool.core.sites import Serving, Site
from commonpool.core.standing import Before, Passage, Standing, standing
from commonpool.core.standing import before as standing_before
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
        self._turns = Turns(self.state)
        self._seq = 0

    def handle(self, event: Event, now: int) -> list[Effect]:  # noqa: C901, PLR0912 - one branch an event
        """Take in one event; return what must be done about it. `now` never goes backwards."""
        effects: list[Effect] = []
        kind = type(event)  # the two that a request takes are told apart at once
        if kind is Arrived:
            self._arrived(cast("Arrived", event), now, effects)
        elif kind is Ended:
            self._ended(cast("Ended", event), now, effects)
        elif isinstance(event, Recalled):
            self._recalled(event, now, effects)
        elif isinstance(event, Produced):
            self._produced(event)
        elif isinstance(event, Cancelled):
            self._cancelled(event.request_id, now, effects)
        elif isinstance(event, Submitted):
            self._submitted(event, now, effects)
        elif isinstance(event, JobEnded):
            self._job_ended(event, now, effects)
        elif isinstance(event, ReplicaReady):
            self._replica_ready(event, now, effects)
        elif isinstance(event, ReplicaDraining):
            self._replica_draining(event.replica_id, now, effects)
        elif isinstance(event, ReplicaLost):
            self._replica_lost(event, now, effects)
        elif isinstance(event, Configured):
            self._reconfigured(event.policy, now, effects)
        elif isinstance(event, DevicesChanged):
            self._devices_changed(event, now, effects)
        elif isinstance(event, Granted):
            self._granted(event, now, effects)
        elif isinstance(event, Ticked):
            self._ticked(now, effects)
        elif isinstance(event, Spent):
            self._spent(event, now)
        elif isinstance(event, HostLoad):
            self.state.hosts[event.node] = event
        elif isinstance(event, NodeSeen | NodeLost):
            self._nodes_changed(event, now, effects)
        elif isinstance(event, Released):
            self._released(event, now, effects)
        elif isinstance(event, KeyLimited):
            self._key_limited(event, now, effects)
        elif isinstance(event, KeyRevoked):
            self._key_revoked(event, now, effects)
        elif isinstance(event, Resumed):
            self._resumed(event, now)
        else:
            self._job_resumed(cast("JobResumed", event), now)
        return effects

    def waits_of(self, request_id: str, now: int) -> tuple[Wait, ...] | None:
        """What a request or job that waits has waited for until now, in order; None when nothing of that id waits."""
        entry = self._entries.get(request_id)
        return entry.waits + entry.flow.waited(entry, now) if entry is not None and entry.waiting else None

    def standing(self, request_id: str, now: int) -> Standing | None:
        """Where a request that waits stands among all that wait for its model; None when none of that id waits."""
        entry = self._entries.get(request_id)
        return standing(entry, now) if entry is not None and entry.waiting else None

    def before(self, passage: Passage) -> dict[str, Before]:
        """Of what waits or runs now: who was before a request, by tenant."""
        return standing_before(self._entries.values(), passage)

    def knows(self, task_id: str) -> bool:
        """Whether a request or job of that id waits or runs."""
        return task_id in self._entries

    def expects(self, task_id: str, attempt: int) -> bool:
        """Whether that attempt runs, or may yet be made: its end will be heard of."""
        entry = self._entries.get(task_id)
        return entry is not None and (entry.attempt < attempt if entry.waiting else entry.attempt == attempt)

    def noted(self, task_id: str, until: int) -> UsageRecord | None:
        """What is to be noted of an attempt that runs (`records.noted`); None where nothing of that id runs."""
        entry = self._entries.get(task_id)
        if entry is None or entry.waiting:
            return None
        return records.noted(entry, self.state.policy.prices, until)

    def all_noted(self, until: int) -> list[UsageRecord]:
        """The same of all that run since before `until`."""
        prices = self.state.policy.prices
        running = [entry for entry in self._entries.values() if not entry.waiting and entry.dispatched < until]
        return [records.noted(entry, prices, until) for entry in running]

    def build_of(self, replica: Replica) -> str:
        """What a replica that becomes ready was started with (`Deployment.engine`); "" where its model is gone."""
        site, deployment = self.state.sites.get(replica.model), self.state.policy.deployments.get(replica.model)
        starting = None if site is None else site.crew.starting.get(replica.id)
        if starting is not None:
            return starting.build
        return "" if deployment is None else deployment.engine

    @property
    def savers(self) -> list[str]:
        """The jobs that run, save their state when they are asked to, and have not been asked."""
        every = self.state.devices.values()
        return [job_id for devices in every for job_id in devices.savers if job_id not in devices.saving]

    # -- something arrives ---------------------------------------------------------------------------------------------

    def _arrived(self, event: Arrived, now: int, effects: list[Effect]) -> None:  # noqa: C901 - for each request, so in one piece
        request = event.request
        if request.id in self._entries:
            return
        self._seq += 1
        entry = Entry(request, self._seq, now)
        if event.arrived:
            entry.arrived, entry.attempt = min(now, event.arrived), event.attempts
            entry.waits = (Wait(Cause.KEPT, "", now - entry.arrived),)
        refusal = admission.admit(self.state, entry, request, now)
        if refusal is not None:
            self._missed(request, refusal)
            instead = self._instead(entry, request, refusal, now)
            if instead is None:
                self._refuse(entry, refusal, now, effects)
                return
            entry = instead
        self._entries[request.id] = entry
        flow = entry.flow
        site = cast("Serving", flow.room)
        if site.scaled:
            site.crew.arrivals += entry.sequences
        if not site.line.waiting and site.free_slots > 0:
            # Nobody waits: when it fits, the queue would only hand it back.
            surplus = not flow.node.entitled
            full = any(tally.full for tally in entry.tallies) if entry.tallies else False
            if not (surplus and site.quota.claimed) and not site.quota.stopped and not full:
                spot = site.fit(entry, now)
                if spot is not None:
                    if surplus:
                        site.line.straight_through(flow)
                    self._turns.observe(flow, entry.ask, now)
                    self._turns.start(site, spot, entry, surplus, now, effects)
                    return
        self._turns.wait(entry, now, effects)
        if site.scaled and not site.ready and not site.crew.starting and site.line.waiting == 1:
            self._follow(site, now, effects)  # it sleeps: wake it at once

    def _recalled(self, event: Recalled, now: int, effects: list[Effect]) -> None:
        """It is over at once: all that is kept of it is its record."""
        request = event.request
        if request.id in self._entries:
            return
        self._seq += 1
        entry = Entry(request, self._seq, now)
        refusal = admission.recall(self.state, request, event.usage, event.bytes_out, now)
        if refusal is not None:
            self._refuse(entry, refusal, now, effects)
            return
        site = self.state.sites[request.model]
        entry.attempt, entry.dispatched = 1, now
        record = records.of_request(
            entry,
            request,
            site.quota.pool,
            site.version,
            self.state.policy.prices,
            now,
            ran=True,
            outcome=_COMPLETED,
            status=STATUS_OF_END[_COMPLETED],
            usage=event.usage,
            reason=RECALLED,
            bytes_out=event.bytes_out,
        )
        effects += Settle(record), Recall(request.id)

    def _missed(self, request: Request, refusal: Refusal) -> None:
        """What is refused for want of replicas is asked for all the same; but what comes again was counted before."""
        if request.endpoint == LATER:
            return
        if refusal.reason is Reason.PROMISE or refusal.reason is Reason.NO_REPLICA:
            self.state.sites[request.model].crew.arrivals += request.sequences

    def _instead(self, entry: Entry, request: Request, refusal: Refusal, now: int) -> Entry | None:
        """An entry for the fallback of its model, taken in like any other; None where nothing answers instead."""
        other = self._fallback(request, refusal)
        if other is None:
            return None
        max_wait_ns = self.state.accounts[request.tenant].max_wait_ns
        site = self.state.sites.get(other.model)
        until = entry.arrived + max_wait_ns * (2 if site is not None and site.ready else 1)
        if entry.arrived < now and until <= now:  # it would be given up there as well
            return None
        instead = Entry(other, entry.seq, entry.arrived)
        if admission.admit(self.state, instead, other, now, instead=True) is not None:
            return None
        instead.deadline = entry.arrived + max_wait_ns  # what was promised began with its arrival
        taken = self.state.sites[request.model].crew.instead
        taken[request.tenant] = taken.get(request.tenant, 0) + 1
        return instead

    def _fallback(self, request: Request, refusal: Refusal) -> Request | None:
        """The same request for the model that answers instead, where one does and its tenant allows it."""
        if refusal.reason is not Reason.PROMISE and refusal.reason is not Reason.NO_REPLICA:
            return None
        tenant = self.state.policy.tenants.get(request.tenant)
        if tenant is None or not (tenant.fallback and request.fallback):
            return None
        deployment = self.state.policy.deployments.get(request.model)
        if deployment is None or deployment.fallback is None:
            return None
        return msgspec.structs.replace(request, model=deployment.fallback)

    def _submitted(self, event: Submitted, now: int, effects: list[Effect]) -> None:
        job = event.job
        if job.id in self._entries:
            return
        self._seq += 1
        entry = Entry(job, self._seq, min(now, event.arrived) if event.again else now)
        entry.queued = now
        refusal = admission.admit_job(self.state, entry, job, now, again=event.again)
        devices = self.state.devices.get(job.pool)
        if refusal is not None or devices is None:
            if devices is not None:
                devices.forget(job.id)
            if refusal is not None:
                self._refuse(entry, refusal, now, effects)
            return
        devices.asked(job.id)
        entry.attempt = event.attempts
        self._entries[job.id] = entry
        self._turns.wait(entry, now, effects)

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
        usage = event.usage if outcome is _COMPLETED else records.measured(site, entry, request, event, now)
        tokens_in, tokens_out = usage.tokens_in, usage.tokens_out
        service = INPUT_COST * tokens_in + OUTPUT_COST * tokens_out
        if service and outcome is _COMPLETED:
            self._learn(site, entry, request, event, service, now)
        if outcome is _FAILED or site.troubled:
            site.heard(entry, outcome, event.fault, now)
        running = site.replicas.get(entry.replica_id)
        freed = self._turns.release(site, entry, service, now)
        if site.draining:
            replicas.stop_drained(site, now, effects)
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
            reason=event.reason,
            first_token_at=event.first_token_at,
            bytes_out=event.bytes_out,
            gpu_memory_mib=0 if running is None else running.memory_of(entry),
        )
        entry.failures += outcome is _FAILED
        spent = outcome is _FAILED and entry.failures >= ATTEMPTS_MAX
        again = retry and not spent and admission.judge(self.state, entry) is None
        if again and outcome is _FAILED:
            again = site.retries.take(site.turns, now, sure=event.fault is not Fault.UNCLEAR)
        if flow.account.limited or entry.tallies:
            admission.used(entry, None if again else tokens_in + tokens_out, event.bytes_out, now)
        self._over(entry, record, retry, again, now, effects)
        if freed:
            self._turns.unpark(freed, now)
        self._turns.dispatch(pool, now, effects)
        if site.quota.pool != pool:  # the model has moved: slots are free in one pool, quota in another
            self._turns.dispatch(site.quota.pool, now, effects)

    def _learn(self, site: Serving, entry: Entry, request: Request, event: Ended, service: int, now: int) -> None:
        """What a request of this app produces, and how long this deployment takes over a token of service."""
        ran_ns = now - entry.dispatched
        site.pace.learn(ran_ns // service)
        site.runs.learn(ran_ns)
        entry.flow.learn(request.app, max(1, event.usage.tokens_out // entry.sequences))
        if site.scaled and event.first_token_at and entry.priority >= 0:
            site.crew.first_token(self.state.policy.tiers.get(request.tier), event.first_token_at - entry.arrived)

    def _job_ended(self, event: JobEnded, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(event.job_id)
        if entry is None or entry.waiting or entry.attempt != event.attempt:
            return
        job = entry.task
        if not isinstance(job, Job):
            return
        ended = min(now, max(entry.dispatched, event.ended)) if event.ended else now
        held_ns = ended - entry.dispatched
        if event.outcome is _COMPLETED:
            entry.flow.learn(job.app, held_ns)
        site = cast("Devices", entry.flow.room)
        gpu_memory_mib = site.memory_of(entry)
        freed = self._turns.release(site, entry, entry.ask * held_ns // NS_PER_S, now)
        status = STATUS_OF_END[event.outcome]
        record = records.of_job(
            entry,
            job,
            self.state.policy.prices,
            ended,
            ran=True,
            outcome=event.outcome,
            status=status,
            exited=event.exited,
            cpu_ns=event.cpu_ns,
            memory_mib_s=event.memory_mib_s,
            gpu_memory_mib=gpu_memory_mib,
        )
        self._over(entry, record, event.retry, event.retry and admission.judge(self.state, entry) is None, now, effects)
        self._turns.unpark(freed, now)
        self._turns.dispatch(entry.node.pool, now, effects)

    def _over(
        self, entry: Entry, record: UsageRecord, wanted: bool, again: bool, now: int, effects: list[Effect]
    ) -> None:
        """The record of an attempt, then another attempt or the end."""
        effects.append(Settle(record))
        if record.micro_per_gpu_hour > 0:
            began = record.arrived_ns + record.wait_ns
            spending = entry.flow.account.spending
            spending.charge(record.milli_gpu, began, began + record.run_ns, record.micro_per_gpu_hour)
        if again:
            entry.again(now)
            self._turns.enqueue(entry)
            if entry.flow.length == 1:
                cast("Site", entry.flow.room).explain(entry.flow, now)
            return
        self._forget(entry)
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
            self._turns.replace(entry.flow)

    def _spent(self, event: Spent, now: int) -> None:
        """The books know some of what jobs that run have cost: that is spent, and no longer held."""
        account = self.state.accounts.get(event.tenant)
        if account is None:
            return
        account.spending.told(event.micro, event.booked_until_ns, event.until_ns, now)
        for flow in account.flows:
            site = flow.room
            if isinstance(site, Devices):
                for entry in site.running.values():
                    if entry.flow is flow:
                        admission.hold_rest(entry, now)

    # -- something does not run ----------------------------------------------------------------------------------------

    def _cancelled(self, request_id: str, now: int, effects: list[Effect]) -> None:
        entry = self._entries.get(request_id)
        if entry is None or not entry.waiting:
            return
        entry.waits += entry.flow.waited(entry, now)
        self._drop(entry, now)
        if not _comes_again(entry.task):
            record = records.unserved(self.state, entry, Outcome.CANCELLED, STATUS_CLIENT_GONE, "", now)
            effects.append(Settle(record))
        self._turns.dispatch(cast("Site", entry.flow.room).quota.pool, now, effects)

    def _refuse(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        task = entry.task
        later = not entry.attempt and refusal.reason is Reason.PROMISE and isinstance(task, Request) and task.later
        effects.append(Refuse(entry.id, refusal.reason, refusal.message, refusal.retry_after_ns, later))
        if later or _comes_again(task):
            return
        there = task.model in self.state.sites if isinstance(task, Request) else task.pool in self.state.quotas
        if there and task.tenant in self.state.accounts:
            status = STATUS_OF[refusal.reason]
            effects.append(Settle(records.unserved(self.state, entry, Outcome.REFUSED, status, refusal.reason, now)))

    def _drop(self, entry: Entry, now: int) -> None:
        """It waits no more and will not run; who is behind it is looked at anew."""
        self._turns.unqueue(entry)
        admission.used(entry, 0, 0, now)
        entry.flow.parked = False
        cast("Site", entry.flow.room).line.place(entry.flow)
        self._turns.observe(entry.flow, 0, now)
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.id]
        admission.hold(entry, 0)
        site = entry.flow.room
        if isinstance(site, Devices | Serving):
            site.forget(entry.id)

    def _withdraw(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        """Refuse what had been taken: like any refused request it has consumed nothing."""
        self._leave(entry, now)
        self._refuse(entry, refusal, now, effects)

    def _leave(self, entry: Entry, now: int) -> None:
        """It waits no more, and nothing of its tenant's limits is used by it."""
        entry.waits += entry.flow.waited(entry, now)
        admission.give_back(entry, now)
        self._drop(entry, now)

    # -- time passes ---------------------------------------------------------------------------------------------------

    def _ticked(self, now: int, effects: list[Effect]) -> None:
        self.state.begun = True
        self._end_grants(now)
        for serving in self.state.sites.values():
            serving.pass_time(now)
            self._expire(serving, now, effects)
        for site in self.state.all_sites():
            for flow in site.line.flows.values():
                if not flow.length or flow.parked:  # what is parked waits for the same
                    continue
                if flow.fed:
                    flow.fed = False  # it moves on
                else:
                    site.explain(flow, now)
        for pool, devices in self.state.devices.items():
            self._look_at(pool, devices, now)
            self._turns.dispatch(pool, now, effects)
        self._scale(now, effects)
        for devices in self.state.devices.values():
            if devices.savers:
                reclaim.call_in(self.state, devices, now, effects)

    def _end_grants(self, now: int) -> None:
        for tenant, (_, until) in list(self.state.grants.items()):
            if until <= now:
                self._grant(tenant, 0)
                del self.state.grants[tenant]

    def _scale(self, now: int, effects: list[Effect]) -> None:
        """Let the replicas of every deployment follow demand; those whose guarantees are being missed come first."""
        sites = [site for site in self.state.sites.values() if site.scaled]
        for missed in (True, False):
            for site in sites:
                if (site.crew.within > 0) is missed:
                    self._follow(site, now, effects)
                    replicas.stop_drained(site, now, effects)

    def _follow(self, site: Serving, now: int, effects: list[Effect]) -> None:
        """Let a deployment's replicas follow demand; what they or one that drains had kept goes out."""
        devices = self.state.devices[site.quota.pool]
        kept, takers = devices.kept, len(site.takers)
        replicas.reconcile(self.state, site, now, effects)
        if (devices.kept < kept and devices.line.waiting) or (len(site.takers) < takers and site.line.waiting):
            self._turns.dispatch(site.quota.pool, now, effects)

    def _expire(self, site: Serving, now: int, effects: list[Effect]) -> None:
        """Refuse what has waited past all reason: past max_wait without a replica, or twice max_wait with one.

        What waits for the first replica of a model waits for its start deadline at most, and not at all while none can
        be started; a fallback takes it then. Jobs are not refused: they wait for as long as it takes.
        """
        ready = site.ready
        deployment = self.state.policy.deployments.get(site.name)
        scaling = deployment.scaling if deployment is not None else None
        for flow in site.line.flows.values():
            for lane in flow.every():
                while (entry := lane.oldest) is not None:
                    until = 2 * entry.deadline - entry.arrived if ready else entry.deadline
                    if scaling is not None and not ready:
                        starts = 0 if site.crew.broken else scaling.start_deadline_ns
                        until = min(until, entry.queued + starts)
                    if until > now:
                        break
                    refusal = admission.expired(entry, site.name, now, ready=ready)
                    self._give_up(entry, refusal, now, effects)

    def _give_up(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        """Its model cannot serve it in time: its fallback takes it, or it is refused."""
        request = entry.task
        if not isinstance(request, Request) or entry.attempt:
            self._withdraw(entry, refusal, now, effects)
            return
        self._leave(entry, now)
        moved = self._instead(entry, request, refusal, now)
        if moved is None:
            self._refuse(entry, refusal, now, effects)
            return
        moved.queued, moved.waits = now, entry.waits
        self._entries[moved.id] = moved
        self._turns.join(moved, now)  # whose turn it is is seen when all are where they belong

    # -- replicas and devices ------------------------------------------------------------------------------------------

    def _replica_ready(self, event: ReplicaReady, now: int, effects: list[Effect]) -> None:
        replica = event.replica
        site = self.state.sites.get(replica.model)
        if site is None or replica.id in site.replicas:
            return
        replicas.ready(self.state, site, replica, event.engine, now)
        self._turns.dispatch(site.quota.pool, now, effects)
        self._follow(site, now, effects)  # those that it replaces may go

    def _replica_draining(self, replica_id: str, now: int, effects: list[Effect]) -> None:
        """It takes nothing new. Whoever waited for it, and not for another one, is looked at again."""
        for site in self.state.sites.values():
            if running := site.replicas.get(replica_id):
                running.draining = True
                site.count_free_slots()
                self._turns.dispatch(site.quota.pool, now, effects)

    def _replica_lost(self, event: ReplicaLost, now: int, effects: list[Effect]) -> None:
        for site in self.state.sites.values():
            if event.replica_id in site.replicas or event.replica_id in site.crew.starting:
                replicas.lost(self.state, site, event.replica_id, event.reason, now)
                self._turns.dispatch(site.quota.pool, now, effects)
                self._follow(site, now, effects)
        self.state.prune()

    def _nodes_changed(self, event: NodeSeen | NodeLost, now: int, effects: list[Effect]) -> None:
        """Nodes came, went or changed: their pools have what is there now, up to what their policies say."""
        pools = self.state.see(event.node) if isinstance(event, NodeSeen) else self.state.lose(event.name)
        for pool in pools:
            self._resize(pool, now)
            self.state.devices[pool].nowhere.clear()
            self._size_anew(self.state.devices[pool])
        if pools:
            self._all_anew(now, effects)
            self._scale(now, effects)

    def _resize(self, pool: str, now: int) -> None:
        """A pool has what its nodes have, and what still runs where none is any more."""
        devices, inventory = self.state.devices[pool], self.state.inventories[pool]
        devices.away = inventory.away()
        self.state.quotas[pool].resize(inventory.capacity + devices.away)
        self.state.loans[pool].reconfigured(now)

    def _look_at(self, pool: str, devices: Devices, now: int) -> None:
        """What time changes of devices: maintenance begins and ends, and what ran on a node that is gone ends."""
        devices.nowhere.clear()
        inventory = devices.inventory
        if inventory is not None and devices.away != inventory.away():
            self._resize(pool, now)
            for site in self.state.sites_of[pool]:
                site.line.unpark()

    def _size_anew(self, devices: Devices) -> None:
        """Jobs that were taken while their nodes were away are what they are on the nodes that are there."""
        for flow in devices.line.flows.values():
            for entry in tuple(flow.waiting()):
                if entry.id not in devices.footprints:
                    asked = entry.ask
                    admission.judge(self.state, entry)
                    flow.resize(entry, asked)

    # -- what ran before this machine was made -------------------------------------------------------------------------

    def _resumed(self, event: Resumed, now: int) -> None:
        site = self.state.sites.get(event.request.model)
        entry = self._again_known(event.request, event.attempt, event.arrived, now)
        if entry is None or site is None:
            return
        spot = replicas.of(self.state, site, event.replica_id, now)
        self._turns.take(site, spot, entry, not entry.flow.node.entitled, now)
        site.count_free_slots()  # it may be one that takes nothing new
        entry.dispatched = event.started

    def _job_resumed(self, event: JobResumed, now: int) -> None:
        entry = self._again_known(event.job, event.attempt, event.arrived, now)
        if entry is None:
            return
        site = cast("Devices", entry.flow.room)
        spot = site.again(entry, event.devices, event.milli_gpu, event.memory_mib)
        self._turns.take(site, spot, entry, not site.owns(entry), now)
        entry.dispatched = event.started
        admission.hold_rest(entry, now)
        loan = entry.running
        while loan is not None:  # what it borrows it has had since then
            loan.start_ns = event.started
            loan = loan.following

    def _again_known(self, task: Request | Job, attempt: int, arrived: int, now: int) -> Entry | None:
        """The entry of a task that runs already; None where the policy does not know it, or it is known already."""
        if task.id in self._entries:
            return None
        self._seq += 1
        entry = Entry(task, self._seq, arrived)
        if admission.resume(self.state, entry, now) is not None:
            return None
        entry.attempt = attempt - 1
        entry.queued = now  # what it waited for before is not known any more
        self._entries[task.id] = entry
        return entry

    # -- devices -------------------------------------------------------------------------------------------------------

    def _devices_changed(self, event: DevicesChanged, now: int, effects: list[Effect]) -> None:
        quota = self.state.quotas.get(event.pool)
        if quota is None:
            return
        quota.resize(max(0, event.milli_gpu))
        self.state.loans[event.pool].reconfigured(now)
        self._all_anew(now, effects)

    # -- a new policy --------------------------------------------------------------------------------------------------

    def _reconfigured(self, policy: Policy, now: int, effects: list[Effect]) -> None:
        before = self.state.policy
        self.state.configure(policy, now)
        self._carry_over(before, policy, now)
        self._tally_anew(before, policy, now)
        for site in self.state.all_sites():
            for flow in site.line.flows.values():
                if tenant := policy.tenants.get(flow.tenant):
                    flow.repromise(tenant.max_wait_ns)
                for entry in tuple(flow.waiting()):
                    asked = entry.ask
                    refusal = admission.judge(self.state, entry)
                    flow.resize(entry, asked)
                    if refusal is not None:
                        self._withdraw(entry, refusal, now, effects)
        self._all_anew(now, effects)
        self._scale(now, effects)
        for site in self.state.sites.values():
            if site.name not in policy.deployments:
                self._follow(site, now, effects)
        self.state.prune()

    def _tally_anew(self, before: Policy, policy: Policy, now: int) -> None:
        """Apps have other limits than before: what waits and what runs is counted where it belongs."""
        if any(tenant.apps for tenant in (*before.tenants.values(), *policy.tenants.values())):
            self._count_anew()
        for account in self.state.accounts.values():
            for tally in account.lanes:
                account.turned(tally, now)

    def _count_anew(self) -> None:
        waiting: dict[Flow, dict[str, tuple[Tally, ...]]] = {}
        for entry in self._entries.values():
            task = entry.task
            tallies = self.state.tallies(entry.flow.account, task)
            if tallies == entry.tallies:
                continue
            if entry.waiting:
                waiting.setdefault(entry.flow, {})[entry.id] = tallies
                continue
            held = holds(task, entry.ask)
            for tally in entry.tallies:
                tally.give(held)
            for tally in tallies:
                tally.take(held)
            entry.tallies = tallies
        for flow, changed in waiting.items():
            flow.sort_anew(changed)

    def _key_limited(self, event: KeyLimited, now: int, effects: list[Effect]) -> None:
        self.state.limit_key(event.key, event.limits, now)
        tally = self.state.keys.get(event.key)
        for account in self.state.accounts.values():
            if tally is not None and tally in account.lanes:
                account.turned(tally, now)
                self._all_anew(now, effects)

    def _key_revoked(self, event: KeyRevoked, now: int, effects: list[Effect]) -> None:
        self.state.revoked.add(event.key)
        self.state.keys.pop(event.key, None)
        account = self.state.accounts.get(event.tenant)
        if account is None:
            return
        pools: dict[str, None] = {}
        for flow in account.flows:
            for entry in tuple(flow.waiting()):
                if isinstance(entry.task, Request) and entry.task.key == event.key:
                    self._withdraw(entry, admission.revoked(event.key), now, effects)
                    pools[cast("Site", flow.room).quota.pool] = None
        for pool in pools:
            self._turns.dispatch(pool, now, effects)

    def _carry_over(self, before: Policy, policy: Policy, now: int) -> None:
        """What was released and granted goes with its tenant, into another pool too."""
        for name, milli_gpu in list(self.state.released.items()):
            if name not in policy.tenants:
                del self.state.released[name]
            elif policy.tenants[name].pool != before.tenants[name].pool:
                self.state.release(name, milli_gpu, now)
        for name, (elastic_cap, _) in list(self.state.grants.items()):
            if name in policy.tenants:
                self._grant(name, elastic_cap)
            else:
                del self.state.grants[name]

    def _released(self, event: Released, now: int, effects: list[Effect]) -> None:
        if event.tenant not in self.state.policy.tenants:
            return
        self.state.release(event.tenant, event.milli_gpu, now)
        self._all_anew(now, effects)

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
            site.line.unpark()
        for pool in self.state.quotas:
            self._turns.dispatch(pool, now, effects)


def _comes_again(task: Request | Job) -> bool:
    """Whether somebody keeps it: that it does not run now is not its end, and makes no record."""
    return isinstance(task, Request) and task.endpoint == LATER
