"""Given a core, when it is measured, then each figure is the one that it holds."""

from commonpool.core.events import NodeSeen
from commonpool.core.model import NS_PER_HOUR, Device, Node
from commonpool.core.underuse import underuse
from commonpool.observe import gauges
from commonpool.observe.metrics import ModelGauges, PoolGauges, TenantGauges
from tests.core.worlds import World, policy, tenant


def test_requests_and_jobs_are_told_apart() -> None:
    here = World(policy(tenant("a", 1000, elastic_cap=1000), tenant("b", 2000)), replicas=0)
    here.submit("j0", "a", 1000)
    here.submit("j1", "a", 500)
    here.arrive("r0", "a")
    first, second = gauges.tenants(here.machine.state, ())
    assert first == TenantGauges("a", 1000, 1000, 0, 0, waiting=1, waiting_jobs=1, by_jobs=1000)
    assert second == TenantGauges("b", 2000, 0, 0, 0, waiting=0)


def test_what_could_be_released_is_measured() -> None:
    here = World(policy(tenant("a", 1000)), replicas=0)
    here.machine.state.forecasts["a"].observe(0, 0)
    assert [
        each.releasable for each in gauges.tenants(here.machine.state, underuse(here.machine.state, 71 * NS_PER_HOUR))
    ] == [0]
    assert [
        each.releasable for each in gauges.tenants(here.machine.state, underuse(here.machine.state, 72 * NS_PER_HOUR))
    ] == [1000]


def test_pools_and_models() -> None:
    here = World(policy(tenant("a", 2000)), replicas=0)
    here.ready("m-0")
    assert gauges.pools(here.machine.state) == (PoolGauges("main", 4000, 2000, 0),)
    assert gauges.models(here.machine.state) == (ModelGauges("m", wanted=0, ready=1, starting=0, failures=0),)
    here.send(NodeSeen(Node("n1", "main", (Device("n1/0"), Device("n1/1")))))
    here.submit("j", "a", 500)
    (pool,) = gauges.pools(here.machine.state)
    assert (pool.capacity, pool.free) == (2000, 2000)  # the replica is of before the nodes were known
