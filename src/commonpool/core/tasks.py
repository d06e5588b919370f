"""What becomes of requests and jobs, the tasks: how each comes in, waits, ends, or does not run at all.

What names an id that waits or runs already, or one that does neither, does nothing.
"""

from typing import Final, cast

import msgspec

from commonpool.core import admission, records, replicas
from commonpool.core.admission import Refusal
from commonpool.core.devices import Devices
from commonpool.core.dispatch import Turns
from commonpool.core.effects import Effect, Fail, Recall, Refuse, Settle
from commonpool.core.entries import Entry
from commonpool.core.events import Arrived, Ended, JobEnded, JobResumed, Produced, Recalled, Resumed, Submitted
from commonpool.core.model import (
    LATER,
    NS_PER_S,
    RECALLED,
    Cause,
    Fault,
    Job,
    Outcome,
    Reason,
    Request,
    UsageRecord,
    Wait,
)
from commonpool.core.queueing import INPUT_COST, OUTPUT_COST
from commonpool.core.records import STATUS_CLIENT_GONE, STATUS_OF, STATUS_OF_END
from commonpool.core.sites import Serving, Site
from commonpool.core.state import State
from commonpool.core.supply import Supply

ATTEMPTS_MAX: Final = 2
_COMPLETED: Final = Outcome.COMPLETED
_FAILED: Final = Outcome.FAILED


class Tasks:
    """All that wait or run, their `entries` by id, and what follows from what happens to one of them."""

    def __init__(self, state: State, turns: Turns, supply: Supply) -> None:
        self.entries: dict[str, Entry] = {}
        self._state = state
        self._turns = turns
        self._supply = supply
        self._seq = 0

    # -- something arrives ---------------------------------------------------------------------------------------------

    def arrived(self, event: Arrived, now: int, effects: list[Effect]) -> None:  # noqa: C901 - for each request, so in one piece
        """A request is refused, waits, or runs at once; where it is refused, its fallback may take it."""
        request = event.request
        if request.id in self.entries:
            return
        self._seq += 1
        entry = Entry(request, self._seq, now)
        if event.arrived:
            entry.arrived, entry.attempt = min(now, event.arrived), event.attempts
            entry.waits = (Wait(Cause.KEPT, "", now - entry.arrived),)
        refusal = admission.admit(self._state, entry, request, now)
        if refusal is not None:
            self._missed(request, refusal)
            instead = self._instead(entry, request, refusal, now)
            if instead is None:
                self._refuse(entry, refusal, now, effects)
                return
            entry = instead
        self.entries[request.id] = entry
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
            self._supply.follow(site, now, effects)  # it sleeps: wake it at once

    def recalled(self, event: Recalled, now: int, effects: list[Effect]) -> None:
        """It is over at once: all that is kept of it is its record."""
        request = event.request
        if request.id in self.entries:
            return
        self._seq += 1
        entry = Entry(request, self._seq, now)
        refusal = admission.recall(self._state, request, event.usage, event.bytes_out, now)
        if refusal is not None:
            self._refuse(entry, refusal, now, effects)
            return
        site = self._state.sites[request.model]
        entry.attempt, entry.dispatched = 1, now
        record = records.of_request(
            entry,
            request,
            site.quota.pool,
            site.version,
            self._state.policy.prices,
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
            self._state.sites[request.model].crew.arrivals += request.sequences

    def _instead(self, entry: Entry, request: Request, refusal: Refusal, now: int) -> Entry | None:
        """An entry for the fallback of its model, taken in like any other; None where nothing answers instead."""
        other = self._fallback(request, refusal)
        if other is None:
            return None
        max_wait_ns = self._state.accounts[request.tenant].max_wait_ns
        site = self._state.sites.get(other.model)
        until = entry.arrived + max_wait_ns * (2 if site is not None and site.ready else 1)
        if entry.arrived < now and until <= now:  # it would be given up there as well
            return None
        instead = Entry(other, entry.seq, entry.arrived)
        if admission.admit(self._state, instead, other, now, instead=True) is not None:
            return None
        instead.deadline = entry.arrived + max_wait_ns  # what was promised began with its arrival
        taken = self._state.sites[request.model].crew.instead
        taken[request.tenant] = taken.get(request.tenant, 0) + 1
        return instead

    def _fallback(self, request: Request, refusal: Refusal) -> Request | None:
        """The same request for the model that answers instead, where one does and its tenant allows it."""
        if refusal.reason is not Reason.PROMISE and refusal.reason is not Reason.NO_REPLICA:
            return None
        tenant = self._state.policy.tenants.get(request.tenant)
        if tenant is None or not (tenant.fallback and request.fallback):
            return None
        deployment = self._state.policy.deployments.get(request.model)
        if deployment is None or deployment.fallback is None:
            return None
        return msgspec.structs.replace(request, model=deployment.fallback)

    def submitted(self, event: Submitted, now: int, effects: list[Effect]) -> None:
        """A job is refused, waits, or runs at once."""
        job = event.job
        if job.id in self.entries:
            return
        self._seq += 1
        entry = Entry(job, self._seq, min(now, event.arrived) if event.again else now)
        entry.queued = now
        refusal = admission.admit_job(self._state, entry, job, now, again=event.again)
        devices = self._state.devices.get(job.pool)
        if refusal is not None or devices is None:
            if devices is not None:
                devices.forget(job.id)
            if refusal is not None:
                self._refuse(entry, refusal, now, effects)
            return
        devices.asked(job.id)
        entry.attempt = event.attempts
        self.entries[job.id] = entry
        self._turns.wait(entry, now, effects)

    # -- something ends ------------------------------------------------------------------------------------------------

    def ended(self, event: Ended, now: int, effects: list[Effect]) -> None:
        """An attempt at a request is over: it is metered, what it held is given back, and the next one runs."""
        entry = self.entries.get(event.request_id)
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
            self._state.policy.prices,
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
        again = retry and not spent and admission.judge(self._state, entry) is None
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
            site.crew.first_token(self._state.policy.tiers.get(request.tier), event.first_token_at - entry.arrived)

    def job_ended(self, event: JobEnded, now: int, effects: list[Effect]) -> None:
        """As `ended`, of a job."""
        entry = self.entries.get(event.job_id)
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
            self._state.policy.prices,
            ended,
            ran=True,
            outcome=event.outcome,
            status=status,
            exited=event.exited,
            cpu_ns=event.cpu_ns,
            memory_mib_s=event.memory_mib_s,
            gpu_memory_mib=gpu_memory_mib,
        )
        again = event.retry and admission.judge(self._state, entry) is None
        self._over(entry, record, event.retry, again, now, effects)
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

    def produced(self, event: Produced) -> None:
        """It has produced more than was expected: its flow's counter says so before its end."""
        entry = self.entries.get(event.request_id)
        if entry is None or entry.waiting or not entry.surplus or not isinstance(entry.task, Request):
            return
        more = INPUT_COST * entry.tokens_in + OUTPUT_COST * event.tokens_out - entry.charged
        if more > 0:
            entry.charged += more
            entry.flow.charge(more)
            self._turns.replace(entry.flow)

    # -- something does not run ----------------------------------------------------------------------------------------

    def cancelled(self, request_id: str, now: int, effects: list[Effect]) -> None:
        """Nobody wants what waits any more. What runs is ended elsewhere, and heard of as any end."""
        entry = self.entries.get(request_id)
        if entry is None or not entry.waiting:
            return
        entry.waits += entry.flow.waited(entry, now)
        self._drop(entry, now)
        if not _comes_again(entry.task):
            record = records.unserved(self._state, entry, Outcome.CANCELLED, STATUS_CLIENT_GONE, "", now)
            effects.append(Settle(record))
        self._turns.dispatch(cast("Site", entry.flow.room).quota.pool, now, effects)

    def _refuse(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        """Say so; what came from a tenant that there is makes a record, unless somebody keeps it for later."""
        task = entry.task
        later = not entry.attempt and refusal.reason is Reason.PROMISE and isinstance(task, Request) and task.later
        effects.append(Refuse(entry.id, refusal.reason, refusal.message, refusal.retry_after_ns, later))
        if later or _comes_again(task):
            return
        there = task.model in self._state.sites if isinstance(task, Request) else task.pool in self._state.quotas
        if there and task.tenant in self._state.accounts:
            status = STATUS_OF[refusal.reason]
            effects.append(Settle(records.unserved(self._state, entry, Outcome.REFUSED, status, refusal.reason, now)))

    def _drop(self, entry: Entry, now: int) -> None:
        """It waits no more and will not run; who is behind it is looked at anew."""
        self._turns.unqueue(entry)
        admission.used(entry, 0, 0, now)
        entry.flow.parked = False
        cast("Site", entry.flow.room).line.place(entry.flow)
        self._turns.observe(entry.flow, 0, now)
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        """It is over: nothing is known of it any more."""
        del self.entries[entry.id]
        admission.hold(entry, 0)
        site = entry.flow.room
        if isinstance(site, Devices | Serving):
            site.forget(entry.id)

    def withdraw(self, entry: Entry, refusal: Refusal, now: int, effects: list[Effect]) -> None:
        """Refuse what had been taken: like any refused request it has consumed nothing."""
        self._leave(entry, now)
        self._refuse(entry, refusal, now, effects)

    def _leave(self, entry: Entry, now: int) -> None:
        """It waits no more, and nothing of its tenant's limits is used by it."""
        entry.waits += entry.flow.waited(entry, now)
        admission.give_back(entry, now)
        self._drop(entry, now)

    def expire(self, site: Serving, now: int, effects: list[Effect]) -> None:
        """Refuse what has waited past all reason: past max_wait without a replica, or twice max_wait with one.

        What waits for the first replica of a model waits for its start deadline at most, and not at all while none can
        be started; a fallback takes it then. Jobs are not refused: they wait for as long as it takes.
        """
        ready = site.ready
        deployment = self._state.policy.deployments.get(site.name)
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
            self.withdraw(entry, refusal, now, effects)
            return
        self._leave(entry, now)
        moved = self._instead(entry, request, refusal, now)
        if moved is None:
            self._refuse(entry, refusal, now, effects)
            return
        moved.queued, moved.waits = now, entry.waits
        self.entries[moved.id] = moved
        self._turns.join(moved, now)  # whose turn it is is seen when all are where they belong

    # -- what ran before this machine was made -------------------------------------------------------------------------

    def resumed(self, event: Resumed, now: int) -> None:
        """A request runs already, on a replica that may not be known any more."""
        site = self._state.sites.get(event.request.model)
        entry = self._again_known(event.request, event.attempt, event.arrived, now)
        if entry is None or site is None:
            return
        spot = replicas.of(self._state, site, event.replica_id, now)
        self._turns.take(site, spot, entry, not entry.flow.node.entitled, now)
        site.count_free_slots()  # it may be one that takes nothing new
        entry.dispatched = event.started

    def job_resumed(self, event: JobResumed, now: int) -> None:
        """A job runs already, on these devices."""
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
        if task.id in self.entries:
            return None
        self._seq += 1
        entry = Entry(task, self._seq, arrived)
        if admission.resume(self._state, entry, now) is not None:
            return None
        entry.attempt = attempt - 1
        entry.queued = now  # what it waited for before is not known any more
        self.entries[task.id] = entry
        return entry


def _comes_again(task: Request | Job) -> bool:
    """Whether somebody keeps it: that it does not run now is not its end, and makes no record."""
    return isinstance(task, Request) and task.endpoint == LATER
