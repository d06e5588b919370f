"""Given a core, when it is measured, then each figure is the one that it holds."""

from commonpool.core.events import DeviceLoad, Ended, HostLoad, NodeSeen
from commonpool.core.model import NS_PER_HOUR, Budget, Device, Fault, Node, Outcome, Tier, Usage
from commonpool.core.underuse import underuse
from commonpool.observe import gauges
from commonpool.observe.exposition import render
from tests.core.worlds import S, World, policy, tenant
from tests.observe.test_metrics import parsed


def measured(here: World) -> dict[str, float]:
    """Samples without the prefix."""
    state = here.machine.state
    found = parsed(render(gauges.families(state, here.now, underuse(state, here.now))))
    return {name.removeprefix("commonpool_"): value for name, value in found.items()}


def test_requests_and_jobs_are_told_apart() -> None:
    here = World(policy(tenant("a", 1000, elastic_cap=1000), tenant("b", 2000)), replicas=0)
    here.submit("j0", "a", 1000)
    here.submit("j1", "a", 500)
    here.arrive("r0", "a")
    found = measured(here)
    assert found["tenant_guaranteed_gpus{tenant=a}"] == 1
    assert found["tenant_elastic_cap_gpus{tenant=b}"] == 4
    assert found["tenant_in_use_gpus{tenant=a}"] == 1
    assert found["tenant_waiting_requests{tenant=a}"] == 1
    assert found["tenant_waiting_jobs{tenant=a}"] == 1
    assert found["tenant_job_gpus{tenant=a}"] == 1
    assert found["tenant_waiting_requests{tenant=b}"] == 0
    assert found["tenant_max_wait_seconds{tenant=b}"] == 120


def test_what_could_be_released_is_measured() -> None:
    here = World(policy(tenant("a", 1000)), replicas=0)
    here.machine.state.forecasts["a"].observe(0, 0)
    here.now = 71 * NS_PER_HOUR
    assert measured(here)["tenant_underused_gpus{tenant=a}"] == 0
    here.now = 72 * NS_PER_HOUR
    assert measured(here)["tenant_underused_gpus{tenant=a}"] == 1


def test_the_longest_wait_is_of_each_queue() -> None:
    here = World(policy(tenant("a", 1000), tenant("b", 1000)), replicas=0)
    here.arrive("r0", "a")
    here.now = 3 * S
    here.arrive("r1", "a")
    here.now = 10 * S
    found = measured(here)
    assert found["oldest_wait_seconds{model=m,tenant=a}"] == 10
    assert found["waiting_requests{model=m,tenant=a}"] == 2
    here.ready("m-0")  # which starts both
    assert measured(here)["oldest_wait_seconds{model=m,tenant=a}"] == 0


def test_loans_and_what_is_due_of_them() -> None:
    here = World(policy(tenant("a", 2000), tenant("b", 2000)))
    for number in range(8):
        here.arrive(f"b{number}", "b")
    assert measured(here)["tenant_due_gpus{tenant=a}"] == 0
    here.ready("m-1")
    for number in range(8):
        here.arrive(f"c{number}", "b")
    found = measured(here)
    assert found["loaned_gpus{borrower=b,lender=a}"] == found["tenant_lent_gpus{tenant=a}"] == 2
    assert found["tenant_borrowed_gpus{tenant=b}"] == 2
    here.arrive("a0", "a")
    assert measured(here)["tenant_due_gpus{tenant=a}"] == 2


def test_a_budget_and_what_is_spent_of_it() -> None:
    here = World(policy(tenant("a", 2000, budget=Budget(7_000_000)), tenant("b")))
    found = measured(here)
    assert found["tenant_budget_micro{tenant=a}"] == 7_000_000
    assert found["tenant_budget_spent_micro{tenant=a}"] == 0
    assert found["tenant_budget_held_micro{tenant=a}"] == 0
    assert found["tenant_budget_soft{tenant=a}"] == 0
    assert "tenant_budget_micro{tenant=b}" not in found


def test_the_targets_of_tiers() -> None:
    rules = policy(tenant("a"))
    rules.tiers["interactive"] = Tier("interactive", 2 * S, 3 * S)
    found = measured(World(rules))
    assert found["tier_queue_target_seconds{tier=interactive}"] == 2
    assert found["tier_first_token_target_seconds{tier=interactive}"] == 3
    assert "tier_queue_target_seconds{tier=batch}" not in found


def test_pools_and_models() -> None:
    here = World(policy(tenant("a", 2000)), replicas=0)
    here.ready("m-0")
    found = measured(here)
    assert [found[f"pool_{what}_gpus{{pool=main}}"] for what in ("capacity", "free", "fragmented")] == [4, 2, 0]
    assert found["pool_scaled{pool=main}"] == 0
    assert [found[f"model_{what}{{model=m}}"] for what in ("wanted_replicas", "ready_replicas", "failed_starts")] == [
        0,
        1,
        0,
    ]
    here.send(NodeSeen(Node("n1", "main", (Device("n1/0"), Device("n1/1")))))
    here.submit("j", "a", 500)
    found = measured(here)
    assert found["pool_capacity_gpus{pool=main}"] == found["pool_free_gpus{pool=main}"] == 2  # the replica is of before


def test_the_circuit_of_a_replica_that_fails() -> None:
    here = World(policy(tenant("a", 2000)))
    assert measured(here)["replica_circuit{circuit=closed,model=m,replica=m-0}"] == 1
    for number in range(3):
        here.tick()
        here.arrive(f"r{number}", "a")
        here.send(Ended(f"r{number}", 1, Outcome.FAILED, Usage(), 502, fault=Fault.ENGINE))
    found = measured(here)
    states = [
        found[f"replica_circuit{{circuit={each},model=m,replica=m-0}}"] for each in ("closed", "open", "half_open")
    ]
    assert states == [0, 1, 0]


def test_how_busy_nodes_are() -> None:
    here = World(policy(tenant("a")))
    here.send(NodeSeen(Node("n1", "main", (Device("n1/0"),))))
    here.send(HostLoad("n1", cpu=250, memory=500, network=125))
    found = measured(here)
    assert [found[f"node_{what}_ratio{{node=n1}}"] for what in ("cpu", "memory", "network")] == [0.25, 0.5, 0.125]


def test_what_is_given_of_devices_and_what_their_hardware_says() -> None:
    here = World(policy(tenant("a", 2000)), replicas=0)
    here.send(NodeSeen(Node("n1", "main", (Device("n1/0"), Device("n1/1.0", milli_gpu=500), Device("n1/2")))))
    here.submit("j", "a", 500)
    loads = DeviceLoad("0", 830, 2), DeviceLoad("1.0", None, 1), DeviceLoad("7", 1, 1)
    here.send(HostLoad("n1", 0, 0, devices=loads))
    found = {name: value for name, value in measured(here).items() if name.startswith("device_")}
    held = {name: value for name, value in found.items() if "held" in name}
    assert sorted(held.values()) == [0, 0, 0.5]
    assert {name: value for name, value in found.items() if name not in held} == {
        "device_busy_ratio{device=n1/0,node=n1}": 0.83,
        "device_used_memory_bytes{device=n1/0,node=n1}": 2 * 1024**2,
        "device_used_memory_bytes{device=n1/1.0,node=n1}": 1024**2,
    }
