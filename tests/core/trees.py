"""Random quota trees, and a yard in which random work runs: what the tests of quota, loans and ledger share."""

from hypothesis import strategies as st

from commonpool.core import books
from commonpool.core.lending import Loans
from commonpool.core.model import Group, Loan, Policy
from commonpool.core.quota import Node, Quota
from tests.core.worlds import policy, tenant

TENANTS = ("a", "b", "c", "d", "e")
GROUPS = ("a", "g", "h")  # a group may be called like a tenant
CAPACITY = 24


class Task(books.Task):
    """What runs: it has taken `amount`."""

    def __init__(self, task_id: str, node: Node, amount: int, now: int) -> None:
        super().__init__(task_id)
        self.node = node
        self.amount = amount
        self.since = now

    @property
    def ended_loans(self) -> list[Loan]:
        return self.ended or []


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Trees up to four deep; small amounts, so that everything is often full, and now and then promised twice."""
    small = st.integers(0, 6)
    groups = []
    for n, name in enumerate(GROUPS):
        groups.append(
            Group(
                name,
                draw(st.sampled_from([None, *GROUPS[:n]])),
                draw(st.sampled_from([None, None, 4, 12])),
                draw(st.sampled_from([None, None, 4, 10, 16])),
                draw(st.sampled_from([0, 0, 3, 8])),
            )
        )
    tenants = []
    for name in draw(st.lists(st.sampled_from(TENANTS), min_size=1, unique=True)):
        guaranteed = draw(small)
        tenants.append(
            tenant(
                name,
                guaranteed,
                reserved=draw(st.integers(0, guaranteed)),
                headroom=draw(st.sampled_from([0, 0, 1, 3])),
                elastic_cap=guaranteed + draw(st.integers(0, 20)),
                hard_cap=guaranteed + 30,
                group=draw(st.sampled_from([None, *GROUPS, *GROUPS])),
            )
        )
    capacity = draw(st.sampled_from([CAPACITY, CAPACITY, 10]))
    return policy(*tenants, groups=tuple(groups), milli_gpu=capacity, deployments={})


Step = tuple[str, int, int, Policy | None]
work: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["take", "take", "fill", "give"]), st.integers(0, 30), st.integers(1, 7), st.none()
)
changes: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from(["resize", "grant"]), st.integers(0, 30), st.integers(0, 30), st.none()),
    st.tuples(st.just("configure"), st.just(0), st.just(0), policies()),
)


def steps(*, cuts: bool) -> st.SearchStrategy[list[Step]]:
    """Things to do in a yard; with cuts, promises change under what runs."""
    return st.lists(st.one_of(work, work, work, changes) if cuts else work, max_size=40)


class Yard:
    """A pool in which work runs as far as its quota lets it. `cut`: promises were changed while something ran.

    `lowered`: a grant was taken back that was in use.
    """

    def __init__(self, rules: Policy) -> None:
        self.quota = Quota("main")
        self.loans = Loans(self.quota)
        self.quota.configure(rules)
        self.loans.reconfigured(0)
        self.now = 0
        self.tasks: list[Task] = []
        self.ended: list[Task] = []
        self.cut = self.lowered = False

    def do(self, step: Step) -> None:
        kind, which, amount, rules = step
        self.now += 1
        nodes = list(self.quota.tenants.values())
        node = nodes[which % len(nodes)]
        match kind:
            case "take":
                self.take(node, min(amount, self.room(node)))
            case "fill":
                self.take(node, self.room(node))
            case "give" if self.tasks:
                self.give(self.tasks[which % len(self.tasks)])
            case "resize":
                self.quota.resize(amount if amount < CAPACITY else None)
                self.reconfigured()
            case "grant":
                self.quota.grant(node.name, amount)
                self.lowered = self.lowered or node.use > node.cap
            case "configure" if rules:
                self.quota.configure(rules)
                self.reconfigured()

    def room(self, node: Node) -> int:
        """The most that the tenant may take now."""
        return min(self.quota.free_for(node), *(step.cap - step.use for step in node.path()))

    def take(self, node: Node, amount: int) -> Task | None:
        if amount <= 0:
            return None
        assert self.quota.blocker(node, amount) is None
        task = Task(f"t{self.now}", node, amount, self.now)
        self.tasks.append(task)
        self.quota.take(node, amount)
        self.loans.took(node, task, amount, self.now)
        return task

    def give(self, task: Task) -> None:
        self.tasks.remove(task)
        self.ended.append(task)
        self.quota.give(task.node, task.amount)
        self.loans.gave(task.node, task, self.now)
        self.cut = self.cut and bool(self.tasks)

    def reconfigured(self) -> None:
        self.cut = bool(self.tasks)
        self.loans.reconfigured(self.now)

    def nodes(self) -> list[Node]:
        return [*self.quota.tenants.values(), *self.quota.groups.values()]

    def below(self, node: Node | None) -> list[Node]:
        """The children of a group; of None, the nodes at the top."""
        return [each for each in self.nodes() if each.parent is node]


def short(node: Node) -> bool:
    """Whether the pool owes it something to keep."""
    return node.missing > 0
