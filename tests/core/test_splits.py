"""Every milli_gpu of a pool has one account, at any moment."""

from hypothesis import Phase, given, settings

from commonpool.core.model import Group, Policy
from tests.core.splits import Split, split
from tests.core.trees import Step, Yard, policies, steps
from tests.core.worlds import policy, tenant


def test_used_is_the_tenants_idle_its_owners_and_what_is_lent_nobodys_idle() -> None:
    rules = policy(
        tenant("a", 6, group="team", headroom=2),
        tenant("b"),
        groups=(Group("team", None, None, 10),),
        milli_gpu=24,
        deployments={},
    )
    yard = Yard(rules)
    assert split(yard.quota, yard.loans) == Split({}, {"a": 6}, {"team": 4}, 14)
    yard.take(yard.quota.tenants["a"], 1)
    yard.take(yard.quota.tenants["b"], 20)
    assert split(yard.quota, yard.loans) == Split({"a": 1, "b": 20}, {"a": 2}, {}, 1)


def test_use_over_quota_takes_the_platforms_idle_first_then_the_others_in_proportion() -> None:
    yard = Yard(policy(tenant("a", 10), milli_gpu=24, deployments={}))
    yard.take(yard.quota.tenants["a"], 10)
    yard.quota.configure(policy(tenant("a", 2), tenant("b", 9), tenant("c", 4), milli_gpu=20, deployments={}))
    yard.reconfigured()
    assert split(yard.quota, yard.loans) == Split({"a": 10}, {"b": 7, "c": 3}, {}, 0)
    yard.quota.resize(9)
    yard.reconfigured()
    assert split(yard.quota, yard.loans) == Split({"a": 10}, {}, {}, 0)


@settings(deadline=None, max_examples=200, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules=policies(), todo=steps(cuts=True))
def test_the_accounts_sum_to_the_pool(rules: Policy, todo: list[Step]) -> None:
    yard = Yard(rules)
    for step in todo:
        yard.do(step)
        quota, loans = yard.quota, yard.loans
        accounts = split(quota, loans)
        assert accounts.total == max(quota.capacity, quota.use)
        assert accounts.used == {name: node.use for name, node in quota.tenants.items() if node.use}
        parts = [*accounts.idle.values(), *accounts.idle_of_groups.values()]
        assert min(parts, default=1) > 0 <= accounts.idle_unowned
        if not yard.cut:
            assert accounts.idle_unowned == quota.unowned - loans.lent("")
            for name, node in quota.tenants.items():
                assert accounts.idle.get(name, 0) == max(0, node.guaranteed - node.use) - loans.lent(name)
            for name, node in quota.groups.items():
                assert accounts.idle_of_groups.get(name, 0) == node.own - loans.lent_by_group(name)
