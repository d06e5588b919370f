"""Laws of the core, checked while it runs: what must hold in every simulation, whatever the trace."""

from collections.abc import Sequence

from commonpool.core.effects import Dispatch, Effect, Refuse, Settle, Start
from commonpool.core.events import Arrived, Event, Submitted
from commonpool.core.machine import Machine
from commonpool.core.model import Outcome, Policy
from commonpool.simulator.contract import Decides, Preempt


class LawBrokenError(AssertionError):
    """The machine has done what it never may: which law, when, and what was seen."""


class Checked:
    """Decides as `decides` does, and raises LawBrokenError where `machine`, which is behind it, breaks a law.

    What an effect shows is checked with every event; what the books show every `every` events, and in `finish`. Where
    `policy` is given it is the one whose promise holds: no request that was not refused at once waits longer than its
    tenant's max_wait. Jobs have no such promise.
    """

    def __init__(self, decides: Decides, machine: Machine, every: int = 1, policy: Policy | None = None) -> None:
        self._decides = decides
        self._machine = machine
        self._every = every
        self._policy = policy
        self._events = 0
        self._tenants: dict[str, str] = {}  # of what waits or runs, whose it is
        self._running: dict[str, int] = {}  # by task, the attempt

    def handle(self, event: Event, now: int) -> Sequence[Effect | Preempt]:
        """As what is checked does."""
        arriving = ""
        if isinstance(event, Arrived):
            arriving = event.request.id
            self._tenants[arriving] = event.request.tenant
        elif isinstance(event, Submitted):
            arriving = event.job.id
            self._tenants[arriving] = event.job.tenant
        effects = self._decides.handle(event, now)
        for effect in effects:
            self._check(effect, arriving, now)
        self._events += 1
        if self._events % self._every == 0:
            self.check_books(now)
        return effects

    def finish(self, now: int) -> None:
        """All has ended: nothing is held any more, and everybody was told."""
        self.check_books(now)
        for pool, quota in self._machine.state.quotas.items():
            _law(quota.use == 0, now, f"pool {pool} still counts {quota.use} milli_gpu in use after the last task")
        _law(not self._running, now, f"{len(self._running)} attempts were never given back")

    def check_books(self, now: int) -> None:
        """No use above a cap or the pool; what runs is what is counted; what is borrowed is what is lent."""
        running = 0
        for pool, quota in self._machine.state.quotas.items():
            tenants = quota.tenants.values()
            total = sum(node.use for node in tenants)
            running += sum(node.running for node in tenants)
            _law(total == quota.use, now, f"pool {pool} counts {quota.use} milli_gpu in use, its tenants {total}")
            _law(quota.use <= quota.capacity, now, f"pool {pool} uses {quota.use} of {quota.capacity} milli_gpu")
            for node in tenants:
                _law(node.use <= node.cap, now, f"{node.name} uses {node.use} milli_gpu, its cap is {node.cap}")
            self._check_loans(pool, now)
        _law(running == len(self._running), now, f"{running} tasks are counted as running, {len(self._running)} run")

    def _check_loans(self, pool: str, now: int) -> None:
        state = self._machine.state
        books = state.loans[pool]
        lent: dict[str, int] = {}
        borrowed: dict[str, int] = {}
        for loan in books.open_loans():
            lent[loan.lender] = lent.get(loan.lender, 0) + loan.milli_gpu
            borrowed[loan.borrower] = borrowed.get(loan.borrower, 0) + loan.milli_gpu
            _law(loan.lender != loan.borrower, now, f"{loan.lender} lends to itself")
            _law(
                loan.task.id in self._running, now, f"a loan to {loan.borrower} is for {loan.task.id}, which has ended"
            )
        for name, node in state.quotas[pool].tenants.items():
            given, taken = lent.get(name, 0), borrowed.get(name, 0)
            _law(given == books.lent(name), now, f"{name} has lent {books.lent(name)} milli_gpu, its loans are {given}")
            _law(
                taken == books.borrowed(name),
                now,
                f"{name} has borrowed {books.borrowed(name)} milli_gpu, its loans are {taken}",
            )
            above = max(0, node.use - node.guaranteed)
            _law(taken <= above, now, f"{name} has borrowed {taken} milli_gpu and is only {above} above its guarantee")

    def _check(self, effect: Effect | Preempt, arriving: str, now: int) -> None:
        if isinstance(effect, Dispatch | Start):
            task = effect.request_id if isinstance(effect, Dispatch) else effect.job_id
            _law(task in self._tenants, now, f"{task} was started, and nobody asked for it")
            _law(task not in self._running, now, f"{task} was started while it runs")
            self._running[task] = effect.attempt
            if isinstance(effect, Dispatch):
                self._check_promise(task, effect.wait_ns, now)
        elif isinstance(effect, Refuse):
            late = self._policy is not None and effect.request_id != arriving
            _law(not late, now, f"{effect.request_id} was refused after its arrival: {effect.message}")
            self._tenants.pop(effect.request_id, None)
        elif isinstance(effect, Settle) and effect.record.outcome is not Outcome.REFUSED:
            record = effect.record
            if record.attempt == self._running.get(record.request_id):
                del self._running[record.request_id]
            else:
                _law(record.run_ns == 0, now, f"attempt {record.attempt} at {record.request_id} was given back twice")
            if record.outcome is Outcome.COMPLETED:
                self._tenants.pop(record.request_id, None)

    def _check_promise(self, task: str, wait_ns: int, now: int) -> None:
        if self._policy is None:
            return
        tenant = self._policy.tenants[self._tenants[task]]
        _law(
            wait_ns <= tenant.max_wait_ns,
            now,
            f"{task} of {tenant.name} waited {wait_ns} ns, its max_wait is {tenant.max_wait_ns} ns",
        )


def _law(holds: bool, now: int, otherwise: str) -> None:
    if not holds:
        raise LawBrokenError(f"at {now} ns: {otherwise}")
