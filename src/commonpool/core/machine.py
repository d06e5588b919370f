"""The machine: every decision about who runs comes from here. `handle(event, now)` returns effects, in order.

A request takes two calls: `Arrived` (admit, queue, perhaps dispatch) and `Ended` (meter, release, dispatch the next); a
job likewise, `Submitted` and `JobEnded` (tasks). Beside them, what there is to run on changes (supply), and what people
set (rules). After every event what is free is given out (dispatch). Nothing that runs is ever interrupted.

Deterministic: no clock, no randomness, no iteration over sets; the same events give the same effects.
"""

from typing import cast

from commonpool.core import admission, reclaim, records
from commonpool.core.devices import Devices
from commonpool.core.dispatch import Turns
from commonpool.core.effects import Effect
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
from commonpool.core.model import Policy, Replica, UsageRecord, Wait
from commonpool.core.rules import Rules
from commonpool.core.standing import Before, Passage, Standing, standing
from commonpool.core.standing import before as standing_before
from commonpool.core.state import State
from commonpool.core.supply import Supply
from commonpool.core.tasks import Tasks


class Machine:
    """The state of all pools, the tasks that wait or run, and what follows from each event."""

    def __init__(self, policy: Policy) -> None:
        self.state = State()
        self.state.configure(policy, 0)
        self._turns = Turns(self.state)
        self._supply = Supply(self.state, self._turns)
        self.tasks = Tasks(self.state, self._turns, self._supply)
        self._rules = Rules(self.state, self._turns, self.tasks, self._supply)

    def handle(self, event: Event, now: int) -> list[Effect]:  # noqa: C901, PLR0912 - one branch an event
        """Take in one event; return what must be done about it. `now` never goes backwards."""
        effects: list[Effect] = []
        kind = type(event)  # the two that a request takes are told apart at once
        if kind is Arrived:
            self.tasks.arrived(cast("Arrived", event), now, effects)
        elif kind is Ended:
            self.tasks.ended(cast("Ended", event), now, effects)
        elif isinstance(event, Recalled):
            self.tasks.recalled(event, now, effects)
        elif isinstance(event, Produced):
            self.tasks.produced(event)
        elif isinstance(event, Cancelled):
            self.tasks.cancelled(event.request_id, now, effects)
        elif isinstance(event, Submitted):
            self.tasks.submitted(event, now, effects)
        elif isinstance(event, JobEnded):
            self.tasks.job_ended(event, now, effects)
        elif isinstance(event, ReplicaReady):
            self._supply.replica_ready(event, now, effects)
        elif isinstance(event, ReplicaDraining):
            self._supply.replica_draining(event.replica_id, now, effects)
        elif isinstance(event, ReplicaLost):
            self._supply.replica_lost(event, now, effects)
        elif isinstance(event, Configured):
            self._rules.reconfigured(event.policy, now, effects)
        elif isinstance(event, DevicesChanged):
            self._supply.devices_changed(event, now, effects)
        elif isinstance(event, Granted):
            self._rules.granted(event, now, effects)
        elif isinstance(event, Ticked):
            self._ticked(now, effects)
        elif isinstance(event, Spent):
            self._spent(event, now)
        elif isinstance(event, HostLoad):
            self.state.hosts[event.node] = event
        elif isinstance(event, NodeSeen | NodeLost):
            self._supply.nodes_changed(event, now, effects)
        elif isinstance(event, Released):
            self._rules.released(event, now, effects)
        elif isinstance(event, KeyLimited):
            self._rules.key_limited(event, now, effects)
        elif isinstance(event, KeyRevoked):
            self._rules.key_revoked(event, now, effects)
        elif isinstance(event, Resumed):
            self.tasks.resumed(event, now)
        else:
            self.tasks.job_resumed(cast("JobResumed", event), now)
        return effects

    def waits_of(self, request_id: str, now: int) -> tuple[Wait, ...] | None:
        """What a request or job that waits has waited for until now, in order; None when nothing of that id waits."""
        entry = self.tasks.entries.get(request_id)
        return entry.waits + entry.flow.waited(entry, now) if entry is not None and entry.waiting else None

    def standing(self, request_id: str, now: int) -> Standing | None:
        """Where a request that waits stands among all that wait for its model; None when none of that id waits."""
        entry = self.tasks.entries.get(request_id)
        return standing(entry, now) if entry is not None and entry.waiting else None

    def before(self, passage: Passage) -> dict[str, Before]:
        """Of what waits or runs now: who was before a request, by tenant."""
        return standing_before(self.tasks.entries.values(), passage)

    def knows(self, task_id: str) -> bool:
        """Whether a request or job of that id waits or runs."""
        return task_id in self.tasks.entries

    def expects(self, task_id: str, attempt: int) -> bool:
        """Whether that attempt runs, or may yet be made: its end will be heard of."""
        entry = self.tasks.entries.get(task_id)
        return entry is not None and (entry.attempt < attempt if entry.waiting else entry.attempt == attempt)

    def noted(self, task_id: str, until: int) -> UsageRecord | None:
        """What is to be noted of an attempt that runs (`records.noted`); None where nothing of that id runs."""
        entry = self.tasks.entries.get(task_id)
        if entry is None or entry.waiting:
            return None
        return records.noted(entry, self.state.policy.prices, until)

    def all_noted(self, until: int) -> list[UsageRecord]:
        """The same of all that run since before `until`."""
        prices = self.state.policy.prices
        running = [entry for entry in self.tasks.entries.values() if not entry.waiting and entry.dispatched < until]
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

    # -- facts from outside --------------------------------------------------------------------------------------------

    def _ticked(self, now: int, effects: list[Effect]) -> None:
        """Time passed: what is over ends, what waits is explained and looked at again, and replicas follow demand."""
        self.state.begun = True
        self._rules.end_grants(now)
        for serving in self.state.sites.values():
            serving.pass_time(now)
            self.tasks.expire(serving, now, effects)
        for site in self.state.all_sites():
            for flow in site.line.flows.values():
                if not flow.length or flow.parked:  # what is parked waits for the same
                    continue
                if flow.fed:
                    flow.fed = False  # it moves on
                else:
                    site.explain(flow, now)
        for pool, devices in self.state.devices.items():
            self._supply.look_at(pool, devices, now)
            self._turns.dispatch(pool, now, effects)
        self._supply.scale(now, effects)
        for devices in self.state.devices.values():
            if devices.savers:
                reclaim.call_in(self.state, devices, now, effects)

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
