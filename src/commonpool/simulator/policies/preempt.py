"""preempt: guarantees enforced by killing what was lent."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from commonpool.core.effects import Dispatch, Effect, Fail, Refuse, Start
from commonpool.core.events import Arrived, Cancelled, Ended, Event, JobEnded, Submitted, Ticked
from commonpool.core.lending import OpenLoan
from commonpool.core.machine import Machine
from commonpool.core.model import Job, Policy, Request
from commonpool.simulator.contract import Preempt
from commonpool.simulator.demand import Asks
from commonpool.simulator.policies.base import SharingPolicy, unpromised, with_tenants

Task = Request | Job

# A job that its guarantee does not cover whole is passed by the next ones, as in the machine; these many are looked at.
_LOOK_AHEAD: Final = 32


class Preempting:
    """The machine; when a tenant's guarantee covers a task that waits for room, the newest borrowed tasks are killed.

    It learns from events and effects what waits, and takes use, guarantees and loans from the machine's books. What is
    killed goes back to its place in its tenant's queue and starts from its beginning, as often as it takes.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._asks = Asks(machine.state.policy)
        for devices in machine.state.devices.values():
            devices.forecasts = {}  # what can be taken back at any time may be lent for any time
        self._tasks: dict[str, Task] = {}  # all that wait or run
        # What waits: by tenant and what it waits for (a model, or "" for a job's GPUs), by priority, in order.
        self._lines: dict[tuple[str, str], dict[int, dict[str, Task]]] = {}
        self._queues: dict[str, dict[str, Task]] = {}  # where in these each of them is
        self._doomed: set[str] = set()  # told to be killed, and not yet reported ended
        self._served_at: dict[str, int] = {}  # when room was last made for a task that waits

    def handle(self, event: Event, now: int) -> list[Effect | Preempt]:
        """As the machine does, and then what is to be killed."""
        effects: list[Effect | Preempt] = [*self._tell(event, now)]
        if self._queues and not isinstance(event, Ticked):  # with time alone nothing changes that could be claimed
            effects += [Preempt(victim) for claimant in self._claimants(now) for victim in self._victims(claimant)]
        return effects

    # -- what waits ----------------------------------------------------------------------------------------------------

    def _tell(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Arrived):
            self._comes(event.request)
        elif isinstance(event, Submitted):
            self._comes(event.job)
        elif isinstance(event, Cancelled):
            self._goes(event.request_id)
        elif isinstance(event, Ended):
            self._ends(event.request_id, again=event.retry)
        elif isinstance(event, JobEnded):
            self._ends(event.job_id, again=event.retry)
        return self._see(event, now)

    def _ends(self, task_id: str, *, again: bool) -> None:
        self._doomed.discard(task_id)
        if again:
            self._comes(self._tasks[task_id])
        else:
            self._goes(task_id)

    def _see(self, event: Event, now: int) -> list[Effect]:
        effects = self._machine.handle(event, now)
        for effect in effects:
            if isinstance(effect, Dispatch):
                self._starts(effect.request_id)
            elif isinstance(effect, Start):
                self._starts(effect.job_id)
            elif isinstance(effect, Refuse | Fail):
                self._goes(effect.request_id)
        return effects

    def _comes(self, task: Task) -> None:
        tenant = self._machine.state.policy.tenants.get(task.tenant)
        priority = tenant.priority.get(task.tier, 0) if tenant else 0
        line = self._lines.setdefault((task.tenant, "" if isinstance(task, Job) else task.model), {})
        queue = line.setdefault(priority, {})
        self._tasks[task.id] = queue[task.id] = task
        self._queues[task.id] = queue

    def _starts(self, task_id: str) -> None:
        queue = self._queues.pop(task_id, None)
        if queue:
            del queue[task_id]
        self._served_at.pop(task_id, None)

    def _goes(self, task_id: str) -> None:
        self._starts(task_id)
        self._tasks.pop(task_id, None)

    # -- who makes room, for whom --------------------------------------------------------------------------------------

    def _claimants(self, now: int) -> Iterator[tuple[Task, int]]:
        """Of each queue the first task that its tenant's guarantee covers whole, and what it asks, once an instant."""
        state = self._machine.state
        for (tenant, _), line in self._lines.items():
            quota = state.quotas[state.policy.tenants[tenant].pool]
            node = quota.tenants[tenant]
            room = node.guaranteed - node.use
            if room <= 0:
                continue
            waiting = [priority for priority, queue in line.items() if queue]
            for task in islice(line[max(waiting)].values() if waiting else (), _LOOK_AHEAD):
                ask = self._asks.milli_gpu(task)
                if ask <= room and quota.blocker(node, ask) is None:
                    if self._served_at.get(task.id) != now:
                        self._served_at[task.id] = now
                        yield task, ask
                    break

    def _victims(self, claimant: tuple[Task, int]) -> list[str]:
        """The newest borrowed tasks whose end makes room for a task: for a request first those on its own model."""
        task, ask = claimant
        state = self._machine.state
        pool = state.policy.tenants[task.tenant].pool
        quota = state.quotas[pool]
        newest = [self._tasks[loan.task.id] for loan in reversed(_by_start(state.loans[pool].open_loans()))]
        victims = {each.id: each for each in newest if each.id not in self._doomed and each.tenant != task.tenant}
        ordered = list(victims.values())
        missing = ask
        if isinstance(task, Request):
            # Only a request of the same model leaves a slot; others help where nothing but the quota is short.
            ordered.sort(key=lambda each: isinstance(each, Job) or each.model != task.model)
        else:
            missing -= max(0, quota.free_for(quota.tenants[task.tenant]))
        chosen: list[str] = []
        for victim in ordered:
            if missing <= 0:
                break
            chosen.append(victim.id)
            missing -= self._asks.milli_gpu(victim)
        self._doomed.update(chosen)
        return chosen


def _by_start(loans: list[OpenLoan]) -> list[OpenLoan]:
    return sorted(loans, key=lambda loan: loan.start_ns)


def _rules(policy: Policy) -> Policy:
    return with_tenants(policy, unpromised)


PREEMPT = SharingPolicy(
    "preempt",
    "Guarantees enforced at once: borrowed work is killed when its lender needs room, and starts again.",
    _rules,
    preempts=True,
)
