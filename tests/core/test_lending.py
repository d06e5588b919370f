"""The loan books: who lends to whom, what comes back when, and the laws of the module's docstring in random trees."""

from collections import defaultdict

from hypothesis import Phase, given, settings

from commonpool.core.forecast import Forecast
from commonpool.core.lending import Loans, OpenLoan
from commonpool.core.model import Group, LoanEnd, Policy
from commonpool.core.quota import Node
from tests.core.trees import Step, Task, Yard, policies, steps
from tests.core.worlds import policy, tenant

H = 3600 * 1_000_000_000


def books(loans: Loans) -> dict[str, dict[str, int]]:
    """What runs, by borrower and lender."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for loan in loans.open_loans():
        found[loan.borrower][loan.lender] += loan.milli_gpu
    return {borrower: dict(sources) for borrower, sources in found.items()}


def ends(task: Task) -> list[tuple[str, int, LoanEnd]]:
    return [(loan.lender, loan.milli_gpu, loan.reason) for loan in task.ended_loans]


def yard(*tenants: tuple[str, int, str | None], groups: tuple[Group, ...] = (), **more: int) -> Yard:
    """A pool of 24 with tenants by name, guarantee and group."""
    members = (tenant(name, guaranteed, group=group) for name, guaranteed, group in tenants)
    return Yard(policy(*members, groups=groups, milli_gpu=more.get("milli_gpu", 24), deployments={}))


def take(pool: Yard, name: str, amount: int) -> Task:
    pool.now += 1
    task = pool.take(pool.quota.tenants[name], amount)
    assert task is not None
    return task


def give(pool: Yard, task: Task) -> Task:
    pool.now += 1
    pool.give(task)
    return task


# -- a flat pool ------------------------------------------------------------------------------------------------------


def test_the_largest_idle_guarantee_lends_first_ties_by_name_and_nobodys_last() -> None:
    pool = yard(("a", 0, None), ("b", 5, None), ("c", 6, None), ("d", 5, None))
    take(pool, "a", 7)
    assert books(pool.loans) == {"a": {"c": 6, "b": 1}}
    take(pool, "a", 10)
    assert books(pool.loans) == {"a": {"c": 6, "b": 5, "d": 5, "": 1}}


def test_what_nobody_owns_lends_last_however_often_it_has_lent() -> None:
    pool = yard(("a", 0, None), ("b", 4, None))
    give(pool, take(pool, "a", 10))
    take(pool, "a", 3)
    assert books(pool.loans) == {"a": {"b": 3}}


def test_a_loan_ends_with_its_task_or_as_soon_as_its_borrower_is_covered() -> None:
    pool = yard(("a", 4, None), ("b", 20, None))
    first, second, third = (take(pool, "a", 3) for _ in range(3))
    assert books(pool.loans) == {"a": {"b": 5}}
    give(pool, first)
    assert (ends(first), ends(second), ends(third)) == ([], [("b", 2, LoanEnd.COVERED)], [("b", 1, LoanEnd.COVERED)])
    give(pool, third)
    assert ends(third) == [("b", 1, LoanEnd.COVERED), ("b", 2, LoanEnd.TASK_DONE)]
    assert pool.loans.borrowed("a") == pool.loans.lent("b") == 0


def test_a_lender_that_comes_back_is_replaced() -> None:
    pool = yard(("a", 0, None), ("b", 8, None), ("c", 6, None))
    task = take(pool, "a", 6)
    assert books(pool.loans) == {"a": {"b": 6}}
    take(pool, "b", 5)
    assert books(pool.loans) == {"a": {"b": 3, "c": 3}}
    assert ends(task) == [("b", 3, LoanEnd.REPLACED)]


def test_headroom_is_not_lent() -> None:
    pool = Yard(policy(tenant("a", headroom=0), tenant("b", 10, headroom=4), milli_gpu=10, deployments={}))
    take(pool, "a", 6)
    assert pool.room(pool.quota.tenants["a"]) == 0
    take(pool, "b", 4)
    assert books(pool.loans) == {"a": {"b": 6}}


def test_over_quota_is_no_loan_and_what_it_takes_may_overdraw_only_the_unowned_part() -> None:
    pool = yard(("a", 10, None), ("b", 0, None), ("c", 8, None))
    own = take(pool, "a", 10)
    task = take(pool, "b", 6)
    assert books(pool.loans) == {"b": {"c": 6}}
    pool.quota.configure(policy(tenant("a", 2), tenant("b"), tenant("c", 4), milli_gpu=12, deployments={}))
    pool.loans.reconfigured(9)
    assert (pool.quota.free, pool.loans.borrowed("a")) == (-4, 0)
    assert books(pool.loans) == {"b": {"c": 4, "": 2}}
    assert ends(task) == [("c", 2, LoanEnd.REPLACED)]
    give(pool, own)
    assert pool.loans.lent("") == 2 <= pool.quota.unowned


def test_what_the_unowned_part_has_overdrawn_is_taken_over_as_soon_as_it_can_be() -> None:
    pool = yard(("a", 8, None), ("b", 0, None), ("c", 8, None))
    own = take(pool, "a", 8)
    take(pool, "b", 8)
    pool.quota.configure(policy(tenant("a", 8), tenant("b"), tenant("c", 4), milli_gpu=12, deployments={}))
    pool.loans.reconfigured(9)
    assert books(pool.loans) == {"b": {"c": 4, "": 4}}
    give(pool, own)
    assert books(pool.loans) == {"b": {"a": 4, "c": 4}}


# -- groups -----------------------------------------------------------------------------------------------------------


def test_siblings_and_the_groups_own_part_lend_first_then_the_next_group_up() -> None:
    pool = yard(
        ("a", 0, "team"),
        ("b", 3, "team"),
        ("c", 6, "division"),
        ("d", 9, None),
        groups=(Group("division", None, None, 12, 0), Group("team", "division", None, 5, 0)),
    )
    take(pool, "a", 4)
    assert books(pool.loans) == {"a": {"b": 3, "team": 1}}
    take(pool, "a", 20)
    assert books(pool.loans) == {"a": {"b": 3, "team": 2, "c": 6, "division": 1, "d": 9, "": 3}}
    assert pool.loans.lent_by_group("team") == 2
    assert pool.quota.free == 0


def test_a_group_lets_out_no_more_than_its_members_leave_of_its_guarantee_beyond_its_reservation() -> None:
    pool = yard(("a", 0, None), ("b", 6, "team"), ("c", 0, "team"), groups=(Group("team", None, None, 8, 5),))
    take(pool, "a", 19)
    assert books(pool.loans) == {"a": {"": 16, "b": 3}}
    assert pool.room(pool.quota.tenants["a"]) == 0
    take(pool, "c", 5)
    assert books(pool.loans) == {"a": {"": 16, "b": 3}, "c": {"b": 3, "team": 2}}


def test_a_group_that_needs_its_own_part_gets_it_back_from_outside() -> None:
    pool = yard(("a", 0, None), ("b", 0, "team"), ("c", 7, None), groups=(Group("team", None, None, 9),))
    task = take(pool, "a", 7)
    assert books(pool.loans) == {"a": {"team": 7}}
    take(pool, "b", 6)
    assert books(pool.loans) == {"a": {"team": 3, "c": 4}, "b": {"team": 6}}
    assert ends(task) == [("team", 4, LoanEnd.REPLACED)]


def test_a_loan_from_outside_comes_home_as_soon_as_the_group_covers_it() -> None:
    pool = yard(("a", 4, "team"), ("b", 0, "team"), ("c", 9, None), groups=(Group("team", None, None, 6),))
    own, more = take(pool, "a", 4), take(pool, "b", 5)
    assert books(pool.loans) == {"b": {"team": 2, "c": 3}}
    give(pool, own)
    assert books(pool.loans) == {"b": {"a": 3, "team": 2}}
    assert ends(more) == [("c", 3, LoanEnd.REPLACED)]


def test_a_group_may_be_called_like_a_tenant() -> None:
    pool = yard(("a", 2, "a"), ("b", 0, "a"), groups=(Group("a", None, None, 5),))
    take(pool, "b", 5)
    assert (pool.loans.lent("a"), pool.loans.lent_by_group("a")) == (2, 3)


def test_a_new_tree_moves_what_its_lenders_no_longer_have() -> None:
    pool = yard(("a", 0, "team"), ("b", 6, None), groups=(Group("team", None, None, 5),))
    task = take(pool, "a", 9)
    assert books(pool.loans) == {"a": {"team": 5, "b": 4}}
    pool.now += 1
    pool.quota.configure(policy(tenant("a"), tenant("c", 8), milli_gpu=24, deployments={}))
    pool.reconfigured()
    assert books(pool.loans) == {"a": {"c": 8, "": 1}}
    assert {(lender, reason) for lender, _, reason in ends(task)} == {
        ("team", LoanEnd.REPLACED),
        ("b", LoanEnd.REPLACED),
    }


# -- for long ---------------------------------------------------------------------------------------------------------


def test_what_can_be_lent_for_long_leaves_what_lenders_will_want() -> None:
    pool = yard(("a", 2, None), ("b", 8, None), ("c", 6, None))
    a = pool.quota.tenants["a"]
    b, c = Forecast(), Forecast()
    b.observe(5, 0)
    c.observe(9, 0)
    assert pool.loans.long_lendable(a, 0, H, {}) == 22
    assert pool.loans.long_lendable(a, 0, H, {"b": b}) == 17
    assert pool.loans.long_lendable(a, 0, H, {"b": b, "c": c}) == 11
    take(pool, "a", 6)
    assert pool.loans.long_lendable(a, 0, H, {"c": c}) == 12
    assert pool.loans.long_lendable(a, 0, H, {"b": b, "c": c}) == 8  # b has 3 beyond what it will want, and lent 4


# -- laws -------------------------------------------------------------------------------------------------------------


def crossing(pool: Yard, group: Node) -> tuple[int, int]:
    """What a group has lent across its border, and borrowed."""

    def inside(loan: OpenLoan, name: str, *, lends: bool) -> bool:
        node = pool.quota.tenants.get(name)
        own_part = lends and loan.source not in pool.loans._tenants.values()
        if own_part:
            node = pool.quota.groups.get(name)
        return node is not None and group in set(node.path())

    out = into = 0
    for loan in pool.loans.open_loans():
        lends = inside(loan, loan.lender, lends=True)
        borrows = inside(loan, loan.borrower, lends=False)
        out += loan.milli_gpu if lends and not borrows else 0
        into += loan.milli_gpu if borrows and not lends else 0
    return out, into


def check(pool: Yard) -> None:
    quota, loans = pool.quota, pool.loans
    opened = loans.open_loans()
    owned = {book: loans.lent_by_group(name) for name, book in loans._owned.items()}
    for name, node in quota.tenants.items():
        assert loans.borrowed(name) == sum(loan.milli_gpu for loan in opened if loan.borrower == name)
        assert loans.borrowed(name) <= node.over_guarantee
        assert pool.cut or loans.borrowed(name) == node.over_guarantee
        lent = sum(loan.milli_gpu for loan in opened if loan.source is loans._tenants[node])
        assert lent == loans.lent(name) <= node.lendable
    for name, book in loans._owned.items():
        assert sum(loan.milli_gpu for loan in opened if loan.source is book) == owned[book] <= quota.groups[name].own
    assert loans.lent("") == sum(loan.milli_gpu for loan in opened if loan.lender == "")
    assert loans.lent("") <= quota.unowned or quota.free < 0
    borrowed = sum(loans.borrowed(name) for name in quota.tenants)
    assert borrowed == sum(loans.lent(name) for name in quota.tenants) + sum(owned.values()) + loans.lent("")
    assert all(loan.milli_gpu > 0 and loan.source is not loan.taker for loan in opened)
    for group in quota.groups.values():
        if group.firm:
            out, into = crossing(pool, group)
            assert out <= group.lendable
            assert into <= max(0, group.held - group.guaranteed)


@settings(deadline=None, max_examples=300, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules=policies(), todo=steps(cuts=True))
def test_the_laws_of_the_books(rules: Policy, todo: list[Step]) -> None:
    pool = Yard(rules)
    used: dict[str, int] = defaultdict(int)
    for step in todo:
        for name, node in pool.quota.tenants.items():
            used[name] += pool.loans.borrowed(name)
            if not pool.cut and node.use >= node.guaranteed:
                for_long = pool.loans.long_lendable(node, 0, H, {})
                assert for_long == pool.quota.free_for(node) - node.kept
        pool.do(step)
        check(pool)
    while pool.tasks:
        for name in pool.quota.tenants:
            used[name] += pool.loans.borrowed(name)
        pool.do(("give", 0, 0, None))
        check(pool)
    lasted: dict[str, int] = defaultdict(int)
    for task in pool.ended:
        for loan in task.ended_loans:
            assert loan.borrower == task.node.name
            assert loan.request_id == task.id
            assert loan.milli_gpu > 0
            assert loan.start_ns <= loan.end_ns
            lasted[loan.borrower] += loan.milli_gpu * (loan.end_ns - loan.start_ns)
    assert {k: v for k, v in lasted.items() if v} == {k: v for k, v in used.items() if v}
