"""A tenant releases a part of its guarantee: the pool has it until it is taken back, and nothing in use is touched."""

from typing import Any

import msgspec

from commonpool.core import views
from commonpool.core.events import DevicesChanged, Released
from commonpool.core.model import Pool
from tests.core.worlds import S, World, dispatched, policy, started, tenant


def two(**more: Any) -> World:
    """Tenants `a` and `b` with 2 GPUs each, of 4."""
    fields: dict[str, Any] = {"milli_gpu": 4000} | more
    return World(policy(tenant("a", 2000), tenant("b", 2000), **fields), replicas=0)


def guaranteed(here: World) -> dict[str, int]:
    return {view.tenant: view.guaranteed for view in views.tenants(here.machine.state)}


def test_what_is_released_belongs_to_nobody_until_it_is_taken_back() -> None:
    here = two()
    assert here.send(Released("a", 1500)) == []
    assert guaranteed(here) == {"a": 500, "b": 2000}
    assert views.pools(here.machine.state)[0].unowned == 1500
    here.submit("a0", "a", 500)
    here.submit("b0", "b", 3500)
    assert {loan.lender: loan.milli_gpu for loan in views.loans(here.machine.state)} == {"": 1500}
    here.send(Released("a", 0))
    assert guaranteed(here) == {"a": 2000, "b": 2000}
    assert {loan.lender: loan.milli_gpu for loan in views.loans(here.machine.state)} == {"a": 1500}


def test_what_is_in_use_is_not_released() -> None:
    here = two()
    here.submit("a0", "a", 1500)
    here.send(Released("a", 2000))
    assert guaranteed(here) == {"a": 1500, "b": 2000}
    assert views.loans(here.machine.state) == []
    assert here.running == ["a0"]


def test_what_is_reserved_is_not_released() -> None:
    here = World(policy(tenant("a", 2000, reserved=1200), tenant("b", 2000), milli_gpu=4000), replicas=0)
    here.send(Released("a", 2000))
    assert guaranteed(here) == {"a": 1200, "b": 2000}


def test_a_second_release_is_instead_of_the_first_and_not_on_top_of_it() -> None:
    here = two()
    here.submit("a0", "a", 500)
    for _ in range(3):
        here.send(Released("a", 1500))
        assert guaranteed(here) == {"a": 500, "b": 2000}
    here.send(Released("a", 1000))
    assert guaranteed(here) == {"a": 1000, "b": 2000}


def test_while_guarantees_are_scaled_down_no_more_is_released_than_there_is_and_all_of_it_comes_back() -> None:
    here = two()
    here.submit("a0", "a", 500)
    here.send(DevicesChanged("main", 2000))
    here.send(Released("a", 2000))
    assert sum(guaranteed(here).values()) <= 2000
    here.send(Released("a", 0))
    here.send(DevicesChanged("main", 4000))
    assert guaranteed(here) == {"a": 2000, "b": 2000}


def test_who_has_released_may_still_borrow_and_waits_like_others() -> None:
    here = two()
    here.send(Released("a", 2000))
    assert started(here.submit("a0", "a", 2000)) == ["a0"]
    (loan,) = views.loans(here.machine.state)
    assert (loan.borrower, loan.milli_gpu) == ("a", 2000)
    assert started(here.submit("b0", "b", 2000)) == ["b0"]


def test_a_release_outlasts_another_policy() -> None:
    here = two()
    here.send(Released("a", 1500))
    here.configure(here.machine.state.policy)
    assert guaranteed(here) == {"a": 500, "b": 2000}


def test_a_release_goes_with_its_tenant_to_another_pool() -> None:
    here = two()
    here.send(Released("a", 1500))
    rules = here.machine.state.policy
    moved = msgspec.structs.replace(rules.tenants["a"], pool="two")
    pools = {**rules.pools, "two": Pool("two", 4000)}
    here.configure(msgspec.structs.replace(rules, pools=pools, tenants={**rules.tenants, "a": moved}))
    assert guaranteed(here) == {"a": 500, "b": 2000}
    here.send(Released("a", 0))
    assert guaranteed(here) == {"a": 2000, "b": 2000}


def test_a_release_of_a_tenant_that_is_not_there_does_nothing_and_leaves_nothing() -> None:
    here = two()
    assert here.send(Released("nobody", 1000)) == []
    rules = here.machine.state.policy
    here.send(Released("a", 1000))
    here.configure(msgspec.structs.replace(rules, tenants={"b": rules.tenants["b"]}))
    here.configure(rules)
    assert guaranteed(here) == {"a": 2000, "b": 2000}


def test_requests_borrow_what_was_released() -> None:
    here = World(policy(tenant("a", 1000, headroom=1000), tenant("b", 1000), milli_gpu=2000))
    assert [dispatched(here.arrive(f"b{n}", "b")) for n in range(3)] == [["b0"], ["b1"], []]
    assert dispatched(here.later(1).send(Released("a", 1000))) == ["b2"]
    assert here.now == S
