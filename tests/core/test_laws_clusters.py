"""Laws of replicas that follow demand and of devices that are known: nothing twice, nothing over, nothing left over.

The world of the other laws, where pool main lies on nodes and models are the machine's to start and to end; nodes come
and go, and of what ran before the machine was made some still runs. All laws of accounts and of the order hold as well.
"""

import msgspec

from commonpool.core.effects import Dispatch, Effect, Start, StartReplica, StopReplica
from commonpool.core.events import (
    Configured,
    Event,
    HostLoad,
    JobResumed,
    NodeLost,
    NodeSeen,
    Released,
    ReplicaLost,
    ReplicaReady,
    Resumed,
)
from commonpool.core.model import (
    Attached,
    Deployment,
    Device,
    Hardware,
    Isolation,
    Job,
    Node,
    Outcome,
    Policy,
    Replica,
    Request,
    Residency,
    Scaling,
)
from commonpool.core.replicas import builds
from tests.core.clusters import held, over_committed
from tests.core.laws import GPUS, KV, MAIN, MODELS, NAMES, Choose, Commons, any_policy, thorough
from tests.core.test_laws_accounts import Accounts
from tests.core.test_laws_order import Order
from tests.core.worlds import S

NODES = ("n1", "n2", "n3", "n4")
RESIDENCY: tuple[Residency, ...] = ("resident", "on_demand", "standby", "async")
ISOLATION: tuple[Isolation, ...] = ("shared", "shared", "guaranteed", "node")
HARDWARE = (None, None, Hardware(milli_gpu=2000, together="any"), Hardware(milli_gpu=2000, memory_mib=20_000))


def any_deployment(choose: Choose, model: str, pool: str) -> Deployment:
    """Of 2 GPUs, or 1, whose replicas follow demand, or in the other pool are engines that run elsewhere."""
    urls = choose([(), ("x", "y"), ("y", "z"), ("x",)]) if pool == "two" else ()
    fewest = choose([0, 1, 1, 2])
    scaling = Scaling(fewest, fewest + choose([1, 0, 2]), choose(RESIDENCY), 30 * S, choose([120, 10]) * S)
    hardware = choose(HARDWARE) if pool == "main" else None
    return Deployment(
        model,
        "1",
        pool,
        2000 if hardware else choose([2000, 1000]),
        4,
        KV[model],
        1000,
        hardware,
        scaling,
        fallback="n" if model == "m" and choose([True, False]) else None,
        engine=choose(["one", "one", "two"]),
        attached=tuple(map(Attached, urls)),
    )


class Clusters(Commons):
    """`asked` are the ids of all replicas that were to be started, `ended` of those that were to end.

    `uncertain`: something ran before this machine was made, or a node was lost or cut, so that more may be held than is
    there. `drained` are the replicas that drained before the last event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coming: dict[str, Replica] = {}
        self.asked: set[str] = set()
        self.ended: set[str] = set()
        self.gone: set[str] = set()
        self.drained: set[str] = set()
        self.resumed_on: set[str] = set()
        self.uncertain = False

    def any_rules(self, choose: Choose) -> Policy:
        made = any_policy(choose)
        main = msgspec.structs.replace(made.pools["main"], placed=True, isolation=choose(ISOLATION))
        models = {model: any_deployment(choose, model, pool) for model, pool in MODELS.items()}
        missing = choose([None] * 6 + ["m", "n"])
        if missing is not None:
            del models[missing]
        models = {
            name: msgspec.structs.replace(each, fallback=each.fallback if each.fallback in models else None)
            for name, each in models.items()
        }
        return msgspec.structs.replace(made, pools=made.pools | {"main": main}, deployments=models)

    def set_up(self) -> None:
        for name in NODES:
            self.send(NodeSeen(self.a_node(name, sick=False)))
        self.wait(lambda options: options[0])

    def a_node(self, name: str, *, sick: bool) -> Node:
        cards = tuple(Device(f"{name}/{at}", "A100", 40_000, healthy=not (sick and at)) for at in range(2))
        return Node(name, "main", cards, 64_000, 256_000)

    # -- what happens --------------------------------------------------------------------------------------------------

    def change(self, choose: Choose) -> None:
        what = [self.node_changes, self.engine_breaks, self.earlier_work, self.release, self.grant, self.rules_change]
        choose([*what, self.hosts_are_busy, self.tend])(choose)

    def tend(self, choose: Choose) -> None:
        """What was to be started comes up, or does not; what was to end is gone."""
        for name in list(self.coming):
            fate = choose(["ready", "ready", "ready", "later", "broken"])
            if name in self.ended:
                self.lose(name, "", choose)
            elif fate == "ready":
                self.send(ReplicaReady(self.coming.pop(name)))
            elif fate == "broken":
                self.lose(name, "It could not start.", choose)
        for name in sorted(self.ended - self.gone):
            if choose([True, True, False]):
                self.lose(name, "", choose)

    def lose(self, name: str, reason: str, choose: Choose) -> None:
        """It is gone, and each attempt on it has failed."""
        self.coming.pop(name, None)
        self.gone.add(name)
        self.send(ReplicaLost(name, reason))
        for each in [each for each in self.running if self.entry(each).replica_id == name]:
            self.send(self.end_of(each, Outcome.FAILED, 0, retry=choose([True, False])))

    def up(self) -> list[str]:
        return [name for site in self.machine.state.sites.values() for name in site.replicas if name not in self.gone]

    def engine_breaks(self, choose: Choose) -> None:
        name = choose(["none", *self.up()])
        if name != "none":
            self.lose(name, "It broke.", choose)

    def node_changes(self, choose: Choose) -> None:
        """It is lost, comes back, or has one device less; what ran on it ends, now or later."""
        name, what = choose(NODES), choose(["lost", "seen", "seen", "sick"])
        inventory = self.machine.state.inventories["main"]
        there = next((node for node in inventory.nodes() if node.name == name), None)
        self.uncertain = self.uncertain or (there is not None and what != "seen")
        self.send(NodeLost(name) if what == "lost" else NodeSeen(self.a_node(name, sick=what == "sick")))
        if what == "lost":
            for replica in [r for site in self.machine.state.sites.values() for r in site.replicas.values()]:
                if replica.id not in self.gone and replica.replica.node == name and choose([True, False]):
                    self.lose(replica.id, "Its node is gone.", choose)

    def earlier_work(self, choose: Choose) -> None:
        """A replica, a request or a job that an earlier run has left behind."""
        self.names += 1
        now = self.world.now
        kind, name = choose(["replica", "request", "job"]), choose(NAMES)
        model = choose(["m", "n"]) if name in MAIN else "p"
        if kind == "replica":
            self.uncertain = True
            devices = tuple(choose([("n1/0",), ("n2/0", "n2/1"), ("n9/0",), ()])) if model != "p" else ()
            node = devices[0].partition("/")[0] if devices else ""
            replica = Replica(f"{model}-9.{self.names}", model, 2000, 4, KV[model], node, devices)
            self.send(ReplicaReady(replica, choose(["one", "two"])))
        elif kind == "request":
            request = Request(f"r{self.names}", name, "app", model, "interactive", "chat", 10, 50)
            replica_id = choose([f"{model}-8.{self.names}", *(each for each in self.up() if each[0] == model)])
            self.uncertain = True
            self.resumed_on.add(replica_id)
            self.taken_over(request, Resumed(request, 2, now - choose([0, 5]) * S, now, replica_id))
        else:
            self.uncertain = True
            pool = "main" if name in MAIN else "two"
            job = Job(f"j{self.names}", name, "app", pool, "batch", choose([500, 2000]))
            devices = choose([("n1/0",), ("n2/0", "n2/1"), ("n9/0",)]) if pool == "main" else ()
            self.taken_over(job, JobResumed(job, 2, now - choose([0, 5]) * S, now, tuple(devices)))

    def taken_over(self, task: Request | Job, event: Event) -> None:
        state = self.machine.state
        known = task.tenant in self.in_force.tenants
        if isinstance(task, Request):
            known = known and task.model in state.accounts[task.tenant].models
        if known:
            self.tasks[task.id] = task
            self.running[task.id] = 2
        self.send(event)

    def release(self, choose: Choose) -> None:
        self.send(Released(choose(NAMES), choose([1000, 0, 5000])))

    def hosts_are_busy(self, choose: Choose) -> None:
        self.send(HostLoad(choose([*NODES, ""]), choose([100, 990]), 100))

    def wait(self, choose: Choose) -> None:
        super().wait(choose)
        self.tend(choose)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def laws(self, event: Event, effects: list[Effect]) -> None:
        super().laws(event, effects)
        for effect in effects:
            if isinstance(effect, StartReplica):
                self.it_is_started_once(effect)
            elif isinstance(effect, StopReplica):
                self.it_is_ended_once(effect)
            elif isinstance(effect, Dispatch):
                assert effect.replica_id not in self.drained
                assert effect.replica_id not in self.gone
        self.nothing_is_held_twice(effects)
        self.what_replicas_hold_is_what_the_inventory_says()
        self.a_pool_has_what_is_there()
        self.drained = {
            replica.id for site in self.machine.state.sites.values() for replica in site.replicas.values()
            if replica.draining
        }  # fmt: skip

    def it_is_started_once(self, effect: StartReplica) -> None:
        """Law: under an id that nothing has any more, and no more of a model than it may have."""
        replica = effect.replica
        assert replica.id not in self.asked - self.gone
        self.asked.add(replica.id)
        self.ended.discard(replica.id)
        self.gone.discard(replica.id)
        self.coming[replica.id] = replica
        deployment = self.in_force.deployments[replica.model]
        site = self.machine.state.sites[replica.model]
        right = builds(deployment) or [deployment.engine]
        stray = self.machine.state.stray  # one on a node that is gone is replaced
        there = sum(not (r.draining or stray(r.replica)) and r.build in right for r in site.replicas.values())
        there += sum(not s.stopping for s in site.crew.starting.values())
        most = len(deployment.attached)
        if not most and deployment.scaling is not None:
            most = deployment.scaling.replicas_max
        assert there <= most

    def it_is_ended_once(self, effect: StopReplica) -> None:
        """Law: at most once, and only what is there."""
        assert effect.replica_id not in self.ended
        self.ended.add(effect.replica_id)

    def nothing_is_held_twice(self, effects: list[Effect]) -> None:
        """Law: no device is given out beyond what it has; where it is, that came from outside."""
        over = over_committed(self.machine)
        for effect in effects:
            given = effect.replica.devices if isinstance(effect, StartReplica) else ()
            given = effect.devices if isinstance(effect, Start) else given
            assert not set(given) & set(over), effect
        if not self.uncertain:
            assert over == []
            for pool, inventory in self.machine.state.inventories.items():
                assert inventory.free >= 0
                assert self.machine.state.devices[pool].free == inventory.free

    def what_replicas_hold_is_what_the_inventory_says(self) -> None:
        state = self.machine.state
        for site in state.sites.values():
            there = [(each.replica, each.pool) for each in site.replicas.values()]
            there += [(each.replica, each.pool) for each in site.crew.starting.values()]
            for replica, pool in there:
                if pool in state.inventories:
                    assert held(self.machine, replica.id, pool) == replica.devices
        for name in self.running:
            entry = self.entry(name)
            if isinstance(entry.task, Job) and entry.attempt != 2 and entry.task.pool == "main":
                placement = state.inventories["main"].held(name)
                assert placement is not None
                assert sum(placement.milli_gpu) == entry.ask

    def a_pool_has_what_is_there(self) -> None:
        state = self.machine.state
        assert state.quotas["main"].capacity == min(
            GPUS["main"], state.inventories["main"].capacity + state.devices["main"].away
        )

    def finish(self) -> None:
        """Everything ends, and no model is wanted any more: nothing is left over."""
        super().finish()
        self.in_force = msgspec.structs.replace(self.in_force, deployments={})
        self.send(Configured(self.in_force))
        for name in [*self.coming, *self.up()]:
            self.lose(name, "", lambda options: options[0])
        state = self.machine.state
        assert state.sites == {}
        assert self.ended >= self.asked - self.gone
        for devices in state.devices.values():
            assert (devices.by_replicas, devices.by_jobs, devices.kept) == (0, 0, 0)
        inventory = state.inventories["main"]
        assert inventory.free == inventory.capacity
        assert not any(inventory.holders(device.id) for device in inventory.devices())


class Life(Clusters, Accounts):
    """The laws of clusters and of accounts."""


class Turns(Clusters, Order):
    """The laws of clusters and of the order."""


TestLife = Life.TestCase
TestLife.settings = thorough(20)
TestTurns = Turns.TestCase
TestTurns.settings = thorough(20)
