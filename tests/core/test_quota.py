"""The quota tree: sums along the path, reservations, and what can never fit."""

from commonpool.core.model import Group
from commonpool.core.quota import Quota
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
