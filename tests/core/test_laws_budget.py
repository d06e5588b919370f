"""Laws of budgets: no more promised than there is, nothing held for nobody, and what is spent is what was charged."""

from collections import defaultdict

import msgspec

from commonpool.core import views
from commonpool.core.effects import Effect, Refuse, Settle
from commonpool.core.events import Arrived, Event, Spent, Submitted
from commonpool.core.model import NS_PER_HOUR, Budget, Job, Policy, Reason
from commonpool.core.pricing import COST_UNIT, exact_cost
from tests.core.laws import NAMES, Choose, Commons, thorough

OFFSET = NS_PER_HOUR // 2  # of the hours of the books


class Budgets(Commons):
    """`known` is what the books last said of each tenant: how much, until when, and the period's end.

    `charged` are the charges of each tenant: milli_gpu, from when, until when, price.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, tuple[int, int, int]] = {}
        self.charged: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
        self.held: dict[str, int] = {}

    def any_rules(self, choose: Choose) -> Policy:
        made = super().any_rules(choose)
        budgets = [None, Budget(500), Budget(3000), Budget(20_000), Budget(5_000_000)]
        tenants = {name: msgspec.structs.replace(each, budget=choose(budgets)) for name, each in made.tenants.items()}
        return msgspec.structs.replace(made, tenants=tenants, hour_offset_ns=OFFSET)

    def set_up(self) -> None:
        self.world.now = 10 * NS_PER_HOUR
        super().set_up()

    def pass_time(self, ns: int) -> None:
        """Sixty times as much, so that hours and periods end."""
        super().pass_time(60 * ns)

    def produced(self, choose: Choose) -> None:
        self.books_say(choose)

    def books_say(self, choose: Choose) -> None:
        """The books are known up to the last full hour, or up to now."""
        now, name = self.world.now, choose(NAMES)
        hour = now - (now - OFFSET) % NS_PER_HOUR
        at, until = choose([now, hour]), hour + choose([0, 1, 5]) * NS_PER_HOUR
        micro = choose([0, 400, 10_000])
        since, _, _ = self.of(name)
        if name in self.machine.state.accounts and until > now and at >= since:
            self.known[name] = (at, micro * COST_UNIT, until)
        self.send(Spent(name, micro, at, until))

    def of(self, name: str) -> tuple[int, int, int]:
        """Since when what is charged counts, what was spent before that, and the end of the period."""
        since, booked, until = self.known.get(name, (0, 0, 0))
        return (until, 0, 0) if 0 < until <= self.world.now else (since, booked, until)

    # -- the laws ------------------------------------------------------------------------------------------------------

    def laws(self, event: Event, effects: list[Effect]) -> None:
        for name in {*self.known, *self.charged} - set(self.machine.state.accounts):
            self.known.pop(name, None)  # the tenant is gone, and nothing of it runs
            self.charged.pop(name, None)
        for effect in effects:
            if isinstance(effect, Settle):
                record = effect.record
                began = record.arrived_ns + record.wait_ns
                used = (record.milli_gpu, began, began + record.run_ns, record.micro_per_gpu_hour)
                self.charged[record.tenant].append(used)
        self.what_is_spent_is_what_was_charged()
        self.what_is_held_is_for_what_is_open()
        if isinstance(event, Arrived | Submitted):
            task = event.request if isinstance(event, Arrived) else event.job
            self.no_more_is_taken_in_than_there_is_money_for(task.tenant, task.id, effects)
        state = self.machine.state
        self.held = {name: account.spending.held for name, account in state.accounts.items()}

    def what_is_spent_is_what_was_charged(self) -> None:
        for name, account in self.machine.state.accounts.items():
            since, booked, _ = self.of(name)
            later = sum(exact_cost(m * max(0, end - max(start, since)), p) for m, start, end, p in self.charged[name])
            assert account.spending.spent(self.world.now) == booked + later

    def what_is_held_is_for_what_is_open(self) -> None:
        state = self.machine.state
        held: dict[str, int] = defaultdict(int)
        for entry in self.machine.tasks.entries.values():
            assert entry.held >= 0
            held[entry.task.tenant] += entry.held
        for name, account in state.accounts.items():
            assert account.spending.held == held[name]

    def no_more_is_taken_in_than_there_is_money_for(self, name: str, task_id: str, effects: list[Effect]) -> None:
        budget = self.in_force.tenants[name].budget if name in self.in_force.tenants else None
        refusals = [effect for effect in effects if isinstance(effect, Refuse)]
        if task_id not in self.machine.tasks.entries:  # what is refused has consumed nothing
            account = self.machine.state.accounts.get(name)
            assert account is None or account.spending.held == self.held.get(name, 0)
            assert all(each.retry_after_ns is None for each in refusals if each.reason is Reason.BUDGET)
        if budget is None:
            assert all(each.reason is not Reason.BUDGET for each in refusals)
        elif task_id in self.machine.tasks.entries:
            spending = self.machine.state.accounts[name].spending
            spent = spending.spent(self.world.now)
            assert spent < budget.micro * COST_UNIT
            entry = self.entry(task_id)
            assert not entry.held or spent + spending.held <= budget.micro * COST_UNIT
            costs = self.in_force.tenants[name].pool in self.in_force.prices
            assert (entry.held > 0) == (costs and not (isinstance(entry.task, Job) and entry.task.expected_ns is None))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.finish()
        state = self.machine.state
        assert all(account.spending.held == 0 for account in state.accounts.values())
        for name in state.accounts:
            view = views.budget(state, name, self.world.now)
            assert view is None or view.held == 0


TestBudgets = Budgets.TestCase
TestBudgets.settings = thorough(30)
