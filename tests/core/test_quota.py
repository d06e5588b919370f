"""The quota tree: sums along the path, what is kept for whom, who is entitled, and what can never fit."""

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from commonpool.core.model import Group, Policy, Pool, Share
from commonpool.core.quota import Node, Quota
from commonpool.core.tree import GROUP_RANK, NO_RANK
from tests.core.trees import Step, Yard, policies, short, steps
from tests.core.worlds import policy, tenant


def tree() -> Quota:
    quota = Quota("main")
    quota.configure(
        policy(
            tenant("a", 1000, group="team"),
            tenant("b", 500, group="team", elastic_cap=1000),
            tenant("c", 1000, reserved=500),
            groups=(Group("division", None, 2500), Group("team", "division", 1500)),
        )
    )
    return quota


def test_use_counts_on_the_whole_path_and_is_given_back_once() -> None:
    quota = tree()
    a = quota.tenants["a"]
    quota.take(a, 700)
    assert [node.name for node in a.path()] == ["a", "team", "division"]
    assert [node.use for node in a.path()] == [700, 700, 700]
    assert (quota.use, quota.give(a, 700), quota.use) == (700, [], 0)


def test_the_nearest_cap_blocks_and_who_waits_there_hears_of_room() -> None:
    quota = tree()
    a, b = quota.tenants["a"], quota.tenants["b"]
    quota.take(a, 1000)
    team = a.parent
    assert quota.blocker(b, 500) is None
    assert quota.blocker(b, 600) is team
    assert quota.blocker(b, 1100) is b
    assert team is not None
    team.waiters["flow"] = None
    assert quota.give(a, 1000) == ["flow"]
    assert team.waiters == {}


def test_what_others_reserve_is_left_alone() -> None:
    quota = tree()
    a, c = quota.tenants["a"], quota.tenants["c"]
    assert quota.free_for(a) == 4000 - 500
    assert quota.free_for(c) == 4000
    quota.take(c, 300)
    assert quota.free_for(a) == 4000 - 300 - 200
    assert (c.reserved_idle, c.lendable) == (200, 500)


def test_the_most_a_tenant_could_ever_use() -> None:
    quota = tree()
    assert [quota.tenants[name].most for name in ("a", "b", "c")] == [1500, 1000, 4000]


def test_a_new_tree_keeps_what_runs() -> None:
    quota = tree()
    quota.take(quota.tenants["a"], 800)
    quota.configure(policy(tenant("b", 500, group="team"), groups=(Group("team", None, 1500),)))
    gone = quota.tenants["a"]
    assert (gone.use, gone.cap, gone.guaranteed, quota.use) == (800, 0, 0, 800)
    quota.give(gone, 800)
    assert quota.use == 0
    quota.configure(policy(tenant("b", 500)))
    assert set(quota.tenants) == {"b"}


def test_a_group_has_a_part_of_its_own_and_keeps_what_it_reserves_for_any_of_its_members() -> None:
    quota = Quota("main")
    quota.configure(
        policy(
            tenant("a", 1000, reserved=500, group="team"),
            tenant("b", 500, group="team"),
            tenant("c", 1000),
            groups=(Group("team", None, None, 2500, 1500),),
        )
    )
    a, b, c, team = *quota.tenants.values(), quota.groups["team"]
    assert (team.guaranteed, team.own, team.reserved, team.kept, quota.unowned) == (2500, 1000, 1500, 1000, 500)
    assert [quota.free_for(node) for node in (a, b, c)] == [4000, 3500, 2500]
    assert [node.most for node in (a, b, c)] == [4000, 3500, 2500]
    quota.take(b, 1200)
    assert (team.kept, team.held, quota.free) == (0, 1700, 2300)
    assert quota.free_for(a) == 2800
    quota.give(b, 1200)
    assert (team.kept, team.held, quota.free) == (1000, 1500, 2500)


def test_entitled_are_those_under_their_own_guarantee_then_those_under_their_groups() -> None:
    quota = Quota("main")
    quota.configure(
        policy(
            tenant("a", 1000, group="team"),
            tenant("b", 500, group="team", reserved=500),
            tenant("c", 1000),
            groups=(Group("division", None, None, 3000), Group("team", "division", None, 2000)),
        )
    )
    a, b, c = quota.tenants.values()
    quota.take(a, 500)
    assert [node.entitled for node in (a, b, c)] == [True, True, True]
    assert b.rank == c.rank == 0 < a.rank == GROUP_RANK // 2
    quota.take(a, 900)  # 400 of the team's own part; b keeps its own
    assert a.entitled
    assert a.rank == GROUP_RANK + GROUP_RANK * 1400 // 2000
    quota.take(a, 100)  # the rest of it; what b keeps is no part of the team for a
    assert a.entitled
    assert a.rank == GROUP_RANK + GROUP_RANK * 1500 // 3000
    quota.take(a, 1000)
    assert [node.entitled for node in (a, b, c)] == [False, True, True]
    assert a.rank == NO_RANK


def test_what_a_group_keeps_for_its_members_entitles_them() -> None:
    quota = Quota("main")
    quota.configure(policy(tenant("a", 500, group="team"), groups=(Group("team", None, None, 2000, 2000),)))
    a, team = quota.tenants["a"], quota.groups["team"]
    quota.take(a, 500)
    assert (team.kept, team.held) == (1500, team.guaranteed)
    assert a.entitled
    quota.take(a, 1500)
    assert not a.entitled


def test_guarantees_above_the_capacity_are_scaled_at_every_level() -> None:
    quota = Quota("main")
    quota.configure(
        policy(
            tenant("a", 3000, group="team", reserved=1000, headroom=500),
            tenant("b", 3000),
            groups=(Group("team", None, None, 5000, 2000),),
        )
    )
    a, b, team = *quota.tenants.values(), quota.groups["team"]
    assert quota.scaled
    assert (a.guaranteed, a.reserved, a.headroom, b.guaranteed) == (1500, 500, 250, 1500)
    assert (team.guaranteed, team.own, team.reserved) == (2500, 1000, 1000)
    assert quota.unowned == 0


def test_rounding_gives_no_group_a_part_of_its_own() -> None:
    quota = Quota("main")
    members = [tenant(name, 1, group="team") for name in "abc"]
    quota.configure(policy(*members, groups=(Group("team"),), milli_gpu=2))
    team = quota.groups["team"]
    assert (team.guaranteed, team.own, team.firm, quota.unowned) == (0, 0, False, 2)


def test_headroom_can_be_used_at_once_and_comes_back_from_what_is_freed() -> None:
    quota = Quota("main")
    quota.configure(policy(tenant("a", 2000, headroom=500), tenant("b", 2000, headroom=500), tenant("c")))
    a, b, c = quota.tenants.values()
    assert quota.free_for(c) == 3000
    quota.take(c, 3000)
    assert [quota.free_for(node) for node in (a, b, c)] == [500, 500, 0]
    quota.take(a, 500)
    assert [quota.free_for(node) for node in (a, b, c)] == [0, 500, 0]  # b's is not touched
    quota.give(c, 3000)
    quota.take(c, 1000)
    assert [(node.kept, quota.free_for(node)) for node in (a, b, c)] == [(500, 2000), (500, 2000), (0, 1500)]


def test_a_grant_raises_a_cap_up_to_the_hard_cap_and_outlives_a_new_policy() -> None:
    quota = Quota("main")
    rules = policy(tenant("a", 500, elastic_cap=1000, hard_cap=2000))
    quota.configure(rules)
    a = quota.tenants["a"]
    quota.grant("a", 1500)
    assert (a.cap, a.most) == (1500, 1500)
    quota.configure(rules)
    assert a.cap == 1500
    quota.grant("a", 9000)
    assert a.cap == 2000
    quota.grant("a", 0)
    assert a.cap == 1000
    quota.grant("nobody", 1)


def test_lost_devices_scale_what_is_promised_until_they_are_back() -> None:
    quota = Quota("main")
    quota.configure(policy(tenant("a", 3000), tenant("b", 1000)))
    a, b = quota.tenants.values()
    quota.take(a, 2500)
    quota.resize(2000)
    assert (quota.capacity, quota.scaled, a.guaranteed, b.guaranteed, quota.free) == (2000, True, 1500, 500, -500)
    assert quota.free_for(b) == -500
    quota.configure(policy(tenant("a", 3000), tenant("b", 1000)))
    assert quota.capacity == 2000
    quota.resize(None)
    assert (quota.capacity, quota.scaled, a.guaranteed, quota.free) == (4000, False, 3000, 1500)


def test_other_resources_follow_the_gpus_unless_a_tenant_names_its_part() -> None:
    rules = Policy(
        pools={"main": Pool("main", 4000, "elastic", {"cpu_milli": 64_000})},
        tiers={},
        groups={"team": Group("team", None, 1000, 3000, 2000)},
        tenants={
            "a": tenant("a", 1000, reserved=500, group="team"),
            "b": tenant("b", 1000, headroom=250, resources={"cpu_milli": Share(8000, 10_000)}),
        },
        deployments={},
        prices={},
    )
    quota = Quota("main", "cpu_milli")
    quota.configure(rules)
    a, b = quota.tenants.values()
    assert (a.guaranteed, a.reserved, a.cap) == (16_000, 8000, 64_000)
    assert (b.guaranteed, b.headroom, b.cap) == (8000, 2000, 10_000)
    assert (quota.groups["team"].guaranteed, quota.groups["team"].firm) == (16_000, False)
    assert (quota.capacity, quota.unowned) == (64_000, 40_000)


# -- laws -------------------------------------------------------------------------------------------------------------


def floor(node: Node) -> int:
    """What a node holds at least, as long as it is not short: by the rule, not by what the tree remembers."""
    return max(node.reserved, min(node.use + node.headroom, node.guaranteed)) if node.headroom else node.reserved


def held(yard: Yard, node: Node, taker: Node, more: int) -> int:
    """What a node would hold if `taker` used this much more, and everybody else kept what it keeps."""
    children = yard.below(node) if node in yard.quota.groups.values() else []
    base = sum(held(yard, child, taker, more) for child in children) if children else node.use
    if node is taker:
        return base + more
    return max(base, node.held)


def fits(yard: Yard, taker: Node, more: int) -> bool:
    return sum(held(yard, node, taker, more) for node in yard.below(None)) <= yard.quota.capacity


@settings(deadline=None, max_examples=150, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules=policies(), todo=steps(cuts=True))
def test_what_is_held_adds_up_and_no_more_is_free_than_that(rules: Policy, todo: list[Step]) -> None:
    yard = Yard(rules)
    quota = yard.quota
    for step in todo:
        was_free = quota.free
        yard.do(step)
        assert quota.use == sum(task.amount for task in yard.tasks)
        for node in yard.nodes():
            children = yard.below(node)
            if node in quota.groups.values():
                assert node.use == sum(child.use for child in children)
                assert node.running == sum(child.running for child in children)
                base = sum(child.held for child in children)
                assert node.guaranteed == node.own + sum(child.guaranteed for child in children)
                assert node.guaranteed >= node.reserved >= sum(child.reserved for child in children)
            else:
                base = node.use
            assert node.held == base + node.kept
            assert yard.cut or yard.lowered or node.use <= node.cap
            if short(node):  # only where there is nothing to give it
                assert quota.free_for(node) <= node.kept
            else:
                assert node.held == max(base, floor(node))
        assert quota.free == quota.capacity - sum(node.held for node in yard.below(None))
        assert quota.free >= 0 or (yard.cut and (was_free < 0 or step[0] in {"resize", "configure"}))
        assert quota.reserved_idle == sum(node.kept for node in yard.nodes())
        assert quota.unowned == quota.capacity - sum(node.guaranteed for node in yard.below(None)) >= 0
        for node in quota.tenants.values():
            free = quota.free_for(node)
            assert free <= quota.capacity - quota.use
            if quota.free >= 0:
                assert fits(yard, node, free)
                assert not fits(yard, node, free + 1)
            elif free < 0:  # else it may start what was kept for it, though more is held than there is
                assert not fits(yard, node, max(1, node.kept))


@settings(deadline=None, max_examples=150, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules=policies(), todo=steps(cuts=False), who=st.integers(0, 30))
def test_who_takes_all_that_is_free_leaves_what_is_kept_for_others(rules: Policy, todo: list[Step], who: int) -> None:
    yard = Yard(rules)
    for step in todo:
        yard.do(step)
    nodes = list(yard.quota.tenants.values())
    node = nodes[who % len(nodes)]
    kept = {each: each.kept for each in yard.nodes() if each not in set(node.path())}
    yard.quota.take(node, yard.quota.free_for(node))
    assert yard.quota.free == 0
    assert kept == {each: each.kept for each in kept}
    assert all(step.kept == 0 for step in node.path())


@settings(deadline=None, max_examples=100, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(rules=policies(), who=st.integers(0, 30))
def test_the_most_is_what_is_free_while_all_are_idle(rules: Policy, who: int) -> None:
    yard = Yard(rules)
    nodes = list(yard.quota.tenants.values())
    node = nodes[who % len(nodes)]
    assert node.most == yard.room(node)
