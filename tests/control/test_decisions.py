"""Decisions, told from what the core holds: one sentence each, when it is decided, and once."""

from typing import Any

import msgspec

from commonpool.control.decisions import Observer
from commonpool.control.decisions.loans import QUIET_NS
from commonpool.control.decisions.models import FALLBACK_OVER_NS
from commonpool.core.events import Granted, Released, ReplicaLost
from commonpool.core.model import Deployment, Fault, Outcome, Usage
from commonpool.observe.decisions import Decision
from tests.core.clusters import Cluster, deployment, rules
from tests.core.worlds import CONTEXT, SLOTS, S, World, policy, tenant


class Told:
    """What an observer tells of a world, look by look."""

    def __init__(self, here: World) -> None:
        self.here = here
        self._observer = Observer()
        self.loans = self._observer.loans
        self.look()

    def look(self, *kinds: str) -> list[Decision]:
        found = list(self._observer.look(self.here.machine.state, self.here.now))
        assert all(each.at_ns == self.here.now for each in found)
        return [each for each in found if not kinds or each.kind in kinds]

    def said(self, *kinds: str) -> list[str]:
        return [each.explanation for each in self.look(*kinds)]


def two(**more: int) -> World:
    return World(policy(tenant("a", 2000), tenant("b", 2000, **more)), replicas=2)


# -- loans -------------------------------------------------------------------------------------------------------------


def test_a_loan_is_told_when_the_pair_begins_when_it_is_due_and_when_it_is_over() -> None:
    here = two()
    told = Told(here)
    for n in range(6):
        here.arrive(f"r{n}", "a")
    (opened,) = told.look("loan")
    assert opened.explanation == "a borrows 1 gpu of b's guarantee, which lies idle"
    assert (opened.tenants, opened.subject, opened.milli_gpu, opened.pool) == (("b", "a"), "a", 1000, "main")
    here.later(1).arrive("r6", "a")
    assert told.said("loan") == []  # the same loan, only larger
    for n in range(4):
        here.arrive(f"s{n}", "b")
    assert told.said("loan") == ["b has work waiting and needs back what a borrows: what frees next goes to b"]
    assert told.said("loan") == []
    for n in range(4):
        here.end(f"r{n}")
    assert told.said("loan") == []  # it may begin again at once
    here.later(QUIET_NS / S)
    assert told.said("loan") == ["a has given back what it borrowed of b's guarantee: 1.5 gpu at most, for 1 s"]


def test_requests_that_borrow_one_after_another_are_one_loan() -> None:
    here = two()
    told = Told(here)
    for n in range(5):
        here.arrive(f"r{n}", "a")
    assert len(told.look("loan")) == 1
    began = here.now
    for n in range(5, 9):
        here.end(f"r{n - 5}")
        here.later(1)
        assert told.said("loan") == []
        here.arrive(f"r{n}", "a")
        assert told.said("loan") == []
    assert (told.loans.since("b", "a"), told.loans.since("a", "b")) == (began, None)


def test_what_is_guaranteed_to_nobody_is_lent_by_the_pool() -> None:
    here = World(policy(tenant("a", 1000)), replicas=2)
    told = Told(here)
    for n in range(4):
        here.arrive(f"r{n}", "a")
    (opened,) = told.look("loan")
    assert opened.explanation == "a borrows 1 gpu of the unowned part of main, which is guaranteed to nobody"
    assert opened.tenants == ("", "a")


# -- replicas ----------------------------------------------------------------------------------------------------------


def cluster(**more: Any) -> Cluster:
    return Cluster(rules(tenant("a", 4000, elastic_cap=8000), models=(deployment(**more),), milli_gpu=8000))


def test_how_many_and_where_are_told_when_they_are_decided() -> None:
    here = cluster(replicas=2)
    told = Told(here)
    here.tick()
    found = told.look()
    assert [(each.kind, each.explanation) for each in found] == [
        ("scaling", "m should have 2 replicas instead of none: that is the fewest it may have"),
        ("placement", "replica m-0.1 of m starts on 2 gpu"),
        ("placement", "replica m-1.1 of m starts on 2 gpu"),
    ]
    assert {(each.model, each.tenants) for each in found} == {("m", ())}
    here.comes("m-0.1")
    assert told.look() == []


def test_one_that_breaks_is_told_with_its_reason() -> None:
    here = cluster(replicas=1)
    told = Told(here)
    here.tick()
    here.comes("m-0.1")
    told.look()
    here.send(ReplicaLost("m-0.1", "The engine ended with status 1. Its last lines: secret"))
    assert told.said("scaling") == [
        "replica m-0.1 of m is lost, so its requests go elsewhere: The engine ended with status 1."
    ]


def test_that_there_is_no_place_is_told_once() -> None:
    here = Cluster(rules(tenant("a", 4000), models=(deployment(replicas=2, milli_gpu=3000),), milli_gpu=4000))
    told = Told(here)
    here.tick()
    (said,) = [each for each in told.said("placement") if "no place" in each]
    assert said.startswith("no place for one more replica of m: A replica needs 3000 milli_gpu")
    here.later(1).tick()
    assert told.look() == []


def test_a_circuit_is_told_when_it_opens_and_when_it_closes() -> None:
    here = two()
    told = Told(here)
    n = 0
    while not (opened := told.said("routing")):
        here.arrive(f"r{n}", "a")
        here.end(f"r{n}", Outcome.FAILED, fault=Fault.ENGINE, status=502)
        here.later(1).tick()
        n += 1
        assert n < 50
    assert opened[0].endswith("of m gets nothing new for now: too many requests failed on it")
    while not (closed := [each for each in told.said("routing") if "again" in each]):
        here.later(1).tick()
        for each in range(3):
            here.arrive(f"ok{n}.{each}", "a")
        for each in range(3):
            here.end(f"ok{n}.{each}")
        n += 1
        assert n < 200
    assert closed[0].endswith("of m gets requests again: one that was tried has succeeded")


def test_the_fallback_is_told_with_whose_requests_it_takes() -> None:
    deployments = {
        "m": Deployment("m", "1", "main", 2000, SLOTS, SLOTS * CONTEXT, CONTEXT, fallback="n"),
        "n": Deployment("n", "7", "main", 1000, 16, 16 * CONTEXT, CONTEXT),
    }
    here = World(policy(tenant("a", 2000, max_wait_ns=10 * S), tenant("b", 1000), deployments=deployments), replicas=0)
    here.ready("n-0", "n", 16)
    told = Told(here)
    for n in range(3):
        here.arrive(f"r{n}", "a")
    here.later(11).tick()  # none of m came within max_wait
    (begins,) = told.look("routing")
    assert begins.explanation == "n answers requests of a for m, which cannot serve them in time"
    assert begins.tenants == ("a",)
    here.later(1).tick()
    assert told.look("routing") == []
    here.later(FALLBACK_OVER_NS / S).tick()
    assert told.said("routing") == ["m serves a by itself again: n answered 3 of its requests"]


# -- quotas and jobs ---------------------------------------------------------------------------------------------------


def test_a_grant_is_told_when_it_is_given_and_when_it_is_over() -> None:
    here = two()
    told = Told(here)
    here.send(Granted("b", 3500, here.now + 60 * S))
    (given,) = told.look()
    assert (given.kind, given.explanation) == ("quota", "b may use 3.5 gpu for 60 s, by a grant")
    here.later(60).tick()
    assert told.said() == ["the grant of b is over: it may use 4 gpu again"]


def test_a_release_is_told_when_it_is_made_and_when_it_is_undone() -> None:
    here = two()
    told = Told(here)
    here.send(Released("b", 500))
    assert told.said() == ["b has released 0.5 gpu of its guarantee, which others may use"]
    here.send(Released("b", 0))
    assert told.said() == ["b has its whole guarantee again: what it had released is taken back"]


def test_a_configuration_tells_the_platform_that_it_is_in_force_and_each_tenant_what_it_has() -> None:
    here = two()
    told = Told(here)
    changed = policy(tenant("a", 3000), tenant("c", 1000))
    here.configure(msgspec.structs.replace(changed, revision=2))
    assert [(each.tenants, each.explanation) for each in told.look("quota")] == [
        ((), "revision 2 of the configuration is in force"),
        (("a",), "a has another quota: guaranteed 3 gpu instead of 2 gpu"),
        (("c",), "c is a tenant of main now, with 1 gpu guaranteed"),
        (("b",), "b is no tenant any more: nothing new of it is taken"),
    ]


def test_guarantees_that_exceed_the_pool_are_told_once() -> None:
    here = World(policy(tenant("a", 3000), tenant("b", 3000)), replicas=0)
    observer = Observer()
    first = [each.explanation for each in observer.look(here.machine.state, 0)]
    assert first == ["the guarantees in main exceed its 4 gpu, so each is cut pro rata"]
    assert list(observer.look(here.machine.state, 1)) == []


def test_a_job_is_told_where_it_starts_and_when_it_is_asked_to_make_room() -> None:
    here = World(policy(tenant("a", 2000), tenant("b", 2000)), replicas=0)
    told = Told(here)
    here.submit("all", "a", 4000, reclaim="checkpoint")
    (started,) = told.look("placement")
    assert started.explanation == "job all of a starts on 4 gpu, of which it borrows 2 gpu of b"
    assert (started.tenants, started.subject, started.milli_gpu) == (("a",), "all", 4000)
    here.submit("b0", "b", 2000)
    here.tick()
    said = [each.explanation for each in told.look("loan") if each.subject == "all"]
    assert said == [
        "job all of a is asked to save its state within 3 s and to wait again, since b needs back what it borrows"
    ]
    here.later(1).tick()
    assert [each for each in told.look() if each.subject == "all"] == []


def test_nothing_is_told_where_nothing_was_decided() -> None:
    here = two()
    told = Told(here)
    here.arrive("r", "a")
    here.later(1).end("r", usage=Usage(10, 0, 10))
    here.later(1).tick()
    assert told.look() == []
