"""What has changed between two looks, and for whom."""

import msgspec

from commonpool.observe.changes import Changed, Changes
from tests.core.worlds import World, policy, tenant


def world() -> World:
    return World(policy(tenant("a", 2000), tenant("b", 2000)), replicas=2)


def test_the_first_look_finds_nothing_and_neither_does_one_after_nothing_happened() -> None:
    here, changes = world(), Changes()
    assert not changes.look(here.machine.state)
    assert not changes.look(here.machine.state)


def test_a_request_changes_its_tenant_its_pool_and_its_model() -> None:
    here, changes = world(), Changes()
    changes.look(here.machine.state)
    here.arrive("r", "a")
    changed = changes.look(here.machine.state)
    assert changed.names == {"tenants": {"a"}, "pools": {"main"}, "models": {"m"}}
    assert changed.among(None) == ("tenants", "pools", "models")
    assert changed.among({"tenants": frozenset({"b"}), "pools": frozenset({"main"})}) == ("pools",)
    assert not changed.among({"tenants": frozenset({"b"})})


def test_one_that_came_and_went_between_two_looks_has_changed_its_model() -> None:
    here, changes = world(), Changes()
    changes.look(here.machine.state)
    here.arrive("r", "a")
    here.end("r")
    assert changes.look(here.machine.state).names == {"models": {"m"}}


def test_a_job_changes_the_jobs_of_its_tenant() -> None:
    here, changes = World(policy(tenant("a", 2000), tenant("b", 2000)), replicas=0), Changes()
    changes.look(here.machine.state)
    here.submit("j", "a", 1000)
    assert changes.look(here.machine.state).names["jobs"] == {"a"}


def test_another_configuration_changes_itself() -> None:
    here, changes = world(), Changes()
    changes.look(here.machine.state)
    here.configure(msgspec.structs.replace(policy(tenant("a", 3000), tenant("b", 1000)), revision=2))
    assert changes.look(here.machine.state).names == {"tenants": {"a", "b"}, "config": {""}}


def test_nothing_is_new_to_who_begins_to_look() -> None:
    here, changes = world(), Changes()
    changes.look(here.machine.state)
    here.arrive("r", "a")
    changes.forget()
    assert changes.look(here.machine.state) == Changed()
