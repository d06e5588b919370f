"""Given a pool, when some work is tried, then it is told its quota and place; what it is told is what happens."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from commonpool.core import trial, views
from commonpool.core.candidates import Barrier
from commonpool.core.effects import Start
from commonpool.core.events import NodeSeen
from commonpool.core.model import Attached, Cause, Deployment, Device, Group, Hardware, Job, Node, Scaling
from commonpool.core.trial import Lender
from tests.core.worlds import S, World, policy, tenant

GIB = 1024
WHOLE = Hardware(milli_gpu=1000)


def node(name: str, count: int = 2, **more: Any) -> Node:
    devices = tuple(Device(f"{name}/{n}", "A100", 80 * GIB, island="a") for n in range(count))
    return Node(name, "main", devices, **more)


def world(*tenants: Any, nodes: tuple[Node, ...] = (node("n1"), node("n2")), **more: Any) -> World:
    deployments = more.pop("deployments", {"m": Deployment("m", "1", "main", 1000, 4, 4000, 1000)})
    here = World(policy(*tenants, deployments=deployments, **more), replicas=0)
    for each in nodes:
        here.send(NodeSeen(each))
    return here


def tried(here: World, who: str, hardware: Hardware = WHOLE, **more: Any) -> trial.Trial:
    return trial.job(here.machine.state, who, hardware, more.pop("resources", {}), more.pop("expected_ns", S), here.now)


def test_what_is_within_the_guarantee_has_a_place() -> None:
    here = world(tenant("a", 2000))
    found = tried(here, "a")
    assert (found.impossible, found.unplaced, found.node) == ("", "", "n1")
    assert found.devices == ("n1/0",)
    assert [candidate.node for candidate in found.candidates] == ["n1", "n2"]
    assert found.allowance is not None
    assert (found.allowance.own_milli_gpu, found.allowance.cause) == (1000, None)
    assert found.allowance.text == "It is within the guarantee of tenant a."


def test_nothing_is_taken() -> None:
    here = world(tenant("a", 2000))
    before = tried(here, "a")
    assert tried(here, "a") == before
    assert here.machine.state.quotas["main"].use == 0
    assert here.machine.state.inventories["main"].free == 4000


def test_what_is_borrowed_names_its_lenders_the_one_with_most_idle_first() -> None:
    here = world(tenant("a", 500), tenant("b", 500), tenant("c", 2000))
    allowance = tried(here, "a", Hardware(milli_gpu=4000, together="any")).allowance
    assert allowance is not None
    assert allowance.lenders == (Lender("c", 2000), Lender("b", 500), Lender("", 1000))
    assert (allowance.own_milli_gpu, allowance.borrowed_milli_gpu, allowance.cause) == (500, 3500, None)
    assert allowance.text == "Tenant a would borrow 3.5 gpu: 2 gpu of c, 0.5 gpu of b, 1 gpu of the unowned part."


def test_a_group_with_a_part_of_its_own_lends_at_home_first() -> None:
    groups = (Group("g", guaranteed=1500),)
    here = world(tenant("a", 0, group="g"), tenant("b", 1000, group="g"), tenant("c", 2000), groups=groups)
    allowance = tried(here, "a", Hardware(milli_gpu=2000)).allowance
    assert allowance is not None
    assert allowance.lenders == (Lender("b", 1000), Lender("g", 500), Lender("c", 500))


def test_what_would_wait_says_for_what() -> None:
    here = world(tenant("a", 1000, elastic_cap=2000), tenant("b", 3000))
    here.submit("b0", "b", 3000, hardware=Hardware(milli_gpu=3000, together="any"))
    here.submit("a0", "a", 1000)
    found = tried(here, "a")
    assert found.allowance is not None
    assert found.allowance.cause is Cause.POOL_FULL
    assert found.allowance.text.startswith("It would wait: tenant at its guarantee")
    assert "0 are held by nobody" in found.unplaced
    assert {candidate.barrier for candidate in found.candidates} == {Barrier.GPU}
    here.submit("a1", "a", 1000)
    assert tried(here, "a").ahead == 1


def test_causes_are_those_of_the_devices() -> None:
    capped = world(tenant("a", 1000, elastic_cap=2000))
    capped.submit("a0", "a", 2000)
    full = tried(capped, "a", Hardware(milli_gpu=500)).allowance
    lender = world(tenant("a", 2000, elastic_cap=4000), tenant("b", 2000, elastic_cap=4000))
    lender.submit("b0", "b", 3000, hardware=Hardware(milli_gpu=3000, together="any"))
    due = tried(lender, "a", Hardware(milli_gpu=2000)).allowance
    lender.submit("a0", "a", 2000)
    denied = tried(lender, "b").allowance
    assert full is not None
    assert due is not None
    assert denied is not None
    assert (full.cause, due.cause, denied.cause) == (Cause.ELASTIC_CAP, Cause.LOAN_DUE, Cause.BORROWING_DENIED)
    assert "loan to b due" in due.text


def test_what_is_wanted_back_soon_is_not_lent_for_long() -> None:
    here = world(tenant("a", 0), tenant("b", 4000))
    here.submit("b0", "b", 4000, hardware=Hardware(milli_gpu=4000, together="any"))
    here.later(60).finish("b0")
    allowance = tried(here, "a", expected_ns=3600 * S).allowance
    assert allowance is not None
    assert allowance.cause is Cause.FORECAST


def test_another_resource_is_looked_at_too() -> None:
    here = world(tenant("a", 1000, elastic_cap=4000), tenant("b", 1000), resources={"cpu_milli": 8000})
    here.submit("b0", "b", 1000, resources={"cpu_milli": 8000})
    allowance = tried(here, "a", resources={"cpu_milli": 1000}).allowance
    assert allowance is not None
    assert allowance.cause is Cause.POOL_FULL


def test_what_can_never_be_is_a_sentence_and_nothing_else() -> None:
    here = world(tenant("a", 1000, elastic_cap=2000))
    found = tried(here, "a", Hardware(milli_gpu=3000, together="any"))
    assert "tenant a can never use more than 2000" in found.impossible
    assert (found.allowance, found.candidates, found.node) == (None, (), "")
    assert "MIG profile 1g.10gb is not in pool main" in tried(here, "a", Hardware(profile="1g.10gb")).impossible


def test_a_pool_that_is_only_counted() -> None:
    here = world(tenant("a", 2000), nodes=())
    found = tried(here, "a")
    assert (found.candidates, found.node, found.unplaced) == ((), "", "")
    here.submit("a0", "a", 4000)
    assert "0 are held by nobody" in tried(here, "a").unplaced


def test_a_replica_is_nobodys_and_goes_where_its_weights_are() -> None:
    scaling = Scaling(replicas_min=1, replicas_max=4)
    deployment = Deployment("m", "1", "main", 1000, 4, 4000, 1000, scaling=scaling)
    here = world(tenant("a", 2000), deployments={"m": deployment}, nodes=(node("n1", 1), node("n2", 2)))
    here.tick()
    (held,) = here.machine.state.sites["m"].crew.starting.values()
    found = trial.replica(here.machine.state, "m", here.now)
    assert found.allowance is None
    assert found.node == next(c.node for c in found.candidates if c.barrier is None)
    assert held.replica.node == "n1"
    assert {c.node: c.loaded for c in found.candidates if c.barrier is None} == {"n2": False}


def test_what_others_have_started_is_not_placed() -> None:
    attached = (Attached("http://127.0.0.1:9001"),)
    deployment = Deployment("m", "1", "main", 1000, 4, 4000, 1000, attached=attached)
    here = world(tenant("a", 2000), deployments={"m": deployment})
    assert "started; no place is looked for" in trial.replica(here.machine.state, "m", 0).impossible


shapes = st.sampled_from(
    [Hardware(milli_gpu=250), WHOLE, Hardware(milli_gpu=2000), Hardware(memory_mib=30 * GIB), Hardware(milli_gpu=600)]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), shapes, st.booleans()), min_size=1, max_size=12))
def test_what_is_told_is_what_happens(steps: list[tuple[str, Hardware, bool]]) -> None:
    """Where nothing waits, a job starts, and borrows, exactly when its trial said so.

    Its devices may be others: with the job, its shape is one more that fragmentation is measured by.
    """
    here = world(tenant("a", 1000, elastic_cap=3000), tenant("b", 2000))
    running: list[str] = []
    for number, (who, hardware, ends) in enumerate(steps):
        if ends and running:
            here.finish(running.pop(0))
        expected = tried(here, who, hardware)
        job = Job(f"j{number}", who, "app", "main", "batch", hardware.milli_gpu, hardware=hardware, expected_ns=S)
        effects = here.submit(job.id, who, job.milli_gpu, hardware=hardware, expected_ns=S)
        starts = [effect for effect in effects if isinstance(effect, Start)]
        allowed = expected.allowance is not None and expected.allowance.cause is None
        assert bool(starts) == (allowed and not expected.unplaced and not expected.impossible)
        if starts:
            assert expected.allowance is not None
            assert len(starts[0].devices) == len(expected.devices)
            lent = {
                loan.lender: loan.milli_gpu for loan in views.loans(here.machine.state) if loan.request_id == job.id
            }
            assert lent == {lender.name: lender.milli_gpu for lender in expected.allowance.lenders}
            running.append(job.id)
        elif not expected.impossible:
            here.cancel(job.id)
