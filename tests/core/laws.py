"""A world in which anything may happen, and what a reader of the machine's state may ask of it.

The laws of the machine are checked by machines that extend `Commons`: two pools, three models with different KV, jobs,
a tree of groups up to three deep. After every event `laws` is called. Everything is drawn through `Choose`, so that
Hypothesis may choose each thing, or a seed a busy while of many.
"""

import copy
from collections.abc import Sequence
from operator import sub
from random import Random
from typing import Protocol, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from commonpool.core.devices import Devices
from commonpool.core.effects import Dispatch, Effect, Fail, Recall, Refuse, Settle, Start
from commonpool.core.entries import Entry, holds
from commonpool.core.events import (
    Arrived,
    Cancelled,
    Configured,
    DevicesChanged,
    Ended,
    Event,
    Granted,
    JobEnded,
    KeyLimited,
    KeyRevoked,
    Produced,
    Recalled,
    ReplicaDraining,
    ReplicaLost,
    ReplicaReady,
    Submitted,
    Ticked,
)
from commonpool.core.machine import Machine
from commonpool.core.model import (
    Deployment,
    Group,
    Job,
    Limits,
    Outcome,
    Policy,
    Pool,
    PoolRule,
    Price,
    Replica,
    Request,
    Share,
    Tenant,
    Tier,
    Usage,
)
from commonpool.core.quota import Node, Quota
from commonpool.core.sites import Serving
from tests.core.worlds import S, World, tenant

MAIN = ("a", "b", "c", "d")  # the tenants of pool main; those of pool two are x and y
NAMES = (*MAIN, "x", "y")
MODELS = {"m": "main", "n": "main", "p": "two"}
CONTEXT = 1000
KV = {"m": 4000, "n": 2000, "p": 3000}  # of a replica; each has 4 slots and 2 GPUs
GPUS = {"main": 8000, "two": 4000}
APPS = ("app", "other")
KEYS = ("", "", "", "k1", "k2")  # of any tenant: to the core it is a name
LIMITED = (  # what an app or a key may be limited to
    Limits(concurrent_requests=1),
    Limits(concurrent_requests=2, tokens_per_minute=9000),
    Limits(queue_length=2, requests_per_minute=30),
    Limits(bytes_per_second=200, tokens_in_max=500, tokens_out_max=100),
)
OF_JOBS = (Limits(milli_gpu=1000), Limits(milli_gpu=4000, cpu_milli=1000), Limits(milli_gpu=500, queue_length=4))

T = TypeVar("T")


class Choose(Protocol):
    def __call__(self, options: Sequence[T], /) -> T: ...


def groups(choose: Choose) -> tuple[Group, ...]:
    """A tree of groups of any shape, up to three deep."""
    return tuple(
        Group(
            name,
            choose([None, *above]),
            choose([None, None, 5000, 3000]),
            choose([None, 3000, 1500, 6000]),
            choose([0, 0, 500, 2000]),
        )
        for name, above in (("g", ""), ("h", "g"), ("i", "gh"))
    )


def tenant_of_any_kind(choose: Choose, name: str) -> Tenant:
    guaranteed = choose([1000, 0, 500, 2000, 250, 3000])
    cap = guaranteed + choose([8000, 8000, 2000, 500, 0])
    limits = Limits(
        concurrent_requests=choose([None] * 6 + [2]),
        queue_length=choose([1000] * 6 + [3]),
        requests_per_minute=choose([None] * 6 + [20]),
        tokens_per_minute=choose([None] * 6 + [5000]),
        bytes_per_second=choose([None] * 6 + [100]),
    )
    in_main = name in MAIN
    return tenant(
        name,
        guaranteed,
        pool="main" if in_main else "two",
        reserved=choose([0, 0, guaranteed, guaranteed // 2]),
        headroom=choose([0, 0, 500]),
        elastic_cap=cap,
        hard_cap=cap + choose([0, 1000]),
        weight=choose([1, 2, 3]),
        group=choose([None, "g", "h", "i"]) if in_main else None,
        max_wait_ns=choose([50, 5]) * S,
        limits=limits,
        resources=choose([{}, {"cpu_milli": Share(4000)}, {"cpu_milli": Share(2000, 8000)}]) if in_main else {},
        apps={app: choose([*LIMITED, *OF_JOBS]) for app in APPS if choose([False, False, True])},
    )


def any_policy(choose: Choose) -> Policy:
    gone = choose([None] * 8 + list(NAMES))
    sharing: tuple[PoolRule, ...] = ("elastic", "elastic", "elastic", "elastic", "elastic", "elastic", "guaranteed")
    return Policy(
        pools={
            "main": Pool("main", GPUS["main"], choose(sharing), {"cpu_milli": 16_000}),
            "two": Pool("two", GPUS["two"]),
        },
        tiers={"interactive": Tier("interactive"), "batch": Tier("batch")},
        groups={group.name: group for group in groups(choose)},
        tenants={name: tenant_of_any_kind(choose, name) for name in NAMES if name != gone},
        deployments={
            model: Deployment(model, "1", pool, 2000, 4, KV[model], CONTEXT) for model, pool in MODELS.items()
        },
        prices={"main": Price("main", 2_500_000)},
    )


class Commons(RuleBasedStateMachine):
    """`tasks` is what waits or runs, `running` which of it runs, and at which attempt."""

    @initialize(seed=st.integers(0, 1 << 32))
    def start(self, seed: int) -> None:
        self.in_force = self.first_rules = self.any_rules(Random(seed).choice)
        self.world = World(self.in_force, replicas=0)
        self.tasks: dict[str, Request | Job] = {}
        self.running: dict[str, int] = {}
        self.grants: dict[str, tuple[int, int]] = {}
        self.replicas = 0
        self.names = 0
        self.set_up()

    def any_rules(self, choose: Choose) -> Policy:
        return any_policy(choose)

    def set_up(self) -> None:
        for model in MODELS:
            self.ready(model)
        for name in NAMES:
            for number, limits in enumerate(LIMITED[:2]):
                self.send(KeyLimited(f"{name}.app.k{number + 1}", limits))

    @rule(
        what=st.sampled_from(["arrive", "end", "submit", "wait", "cancel", "produced", "recall", "change"]),
        data=st.data(),
    )
    def something_happens(self, what: str, data: st.DataObject) -> None:
        getattr(self, what)(lambda options: data.draw(st.sampled_from(options)))

    @rule(seed=st.integers(0, 1 << 32), count=st.sampled_from([10, 30]), wild=st.booleans())
    def a_busy_while(self, seed: int, count: int, wild: bool) -> None:
        """More comes than can be served; in wild times the rules and the machinery change as well."""
        choose = Random(seed).choice
        usual = ("arrive", "arrive", "arrive", "submit", "end", "end", "end", "wait", "cancel", "produced", "recall")
        for _ in range(count):
            getattr(self, choose((*usual, "change") if wild else usual))(choose)

    # -- what happens --------------------------------------------------------------------------------------------------

    def arrive(self, choose: Choose) -> None:
        name = choose(NAMES)
        model = choose(["m", "n"]) if name in MAIN else "p"
        tier, tokens = choose(["interactive", "batch"]), choose([10, 1, 400, 900])
        most, sequences = choose([50, 50, None]), choose([1, 1, 1, 1, 2, 3])
        app, key = choose(APPS), choose(KEYS)
        key = key and f"{name}.{app}.{key}"
        for _ in range(choose([1, 3, 6])):
            self.names += 1
            request = Request(
                f"r{self.names}", name, app, model, tier, "chat", tokens, most, sequences, bytes_in=tokens, key=key
            )
            self.tasks[request.id] = request
            self.send(Arrived(request))

    def submit(self, choose: Choose) -> None:
        self.names += 1
        name, cores, hours = choose(NAMES), choose([0, 0, 1000, 6000]), choose([None, 1, 30])
        job = Job(
            f"j{self.names}",
            name,
            choose(APPS),
            "main" if name in MAIN else "two",
            choose(["interactive", "batch"]),
            choose([250, 500, 1000, 2000, 4000]),
            {"cpu_milli": cores} if cores else {},
            expected_ns=hours and hours * 3600 * S,
        )
        self.tasks[job.id] = job
        self.send(Submitted(job))

    def end(self, choose: Choose) -> None:
        """Some of what runs ends, the oldest or any."""
        outcome = choose([Outcome.COMPLETED, Outcome.COMPLETED, Outcome.CANCELLED, Outcome.FAILED])
        retry = outcome is not Outcome.COMPLETED and choose([False, True])
        for name in list(self.running)[:3] if choose([True, False]) else [choose([*self.running, "nobody"])]:
            if name in self.running:
                event = self.end_of(name, outcome, choose([10, 0, 300]), retry=retry)
                self.send(event)
                assert self.send(event) == []  # a second one does nothing

    def end_of(self, name: str, outcome: Outcome, tokens_out: int, *, retry: bool = False) -> Ended | JobEnded:
        task = self.tasks[name]
        if isinstance(task, Job):
            return JobEnded(name, self.running[name], outcome, retry)
        usage = Usage(task.tokens_in, 0, tokens_out)
        return Ended(name, self.running[name], outcome, usage, retry=retry, bytes_out=5 * tokens_out)

    def produced(self, choose: Choose) -> None:
        """It only counts; whose turn it is by that is seen at the next event of its pool."""
        assert self.send(Produced(choose([*self.running, "nobody"]), 300)) == []
        self.send(Ticked())

    def recall(self, choose: Choose) -> None:
        """A request whose answer is kept is over at once: for all others nothing has changed."""
        self.names += 1
        name, app = choose(NAMES), choose(APPS)
        model, key = choose(["m", "n"]) if name in MAIN else "p", choose(KEYS)
        key = key and f"{name}.{app}.{key}"
        request = Request(f"r{self.names}", name, app, model, "interactive", "chat", 10, 50, bytes_in=10, key=key)
        effects = self.send(Recalled(request, Usage(10, 10, 10), 50))
        assert all(isinstance(effect, Recall | Refuse | Settle) for effect in effects)

    def cancel(self, choose: Choose) -> None:
        self.send(Cancelled(choose([*self.tasks, "nobody"])))

    def wait(self, choose: Choose) -> None:
        self.pass_time(int(choose([0.01, 1, 0.3, 4, 60]) * S))
        self.grants = {name: grant for name, grant in self.grants.items() if grant[1] > self.world.now}
        self.send(Ticked())
        self.tend(choose)

    def pass_time(self, ns: int) -> None:
        self.world.now += ns

    def change(self, choose: Choose) -> None:
        every = [self.replica_comes, self.replica_goes, self.devices_change, self.grant, self.rules_change, self.keys]
        choose(every)(choose)

    def keys(self, choose: Choose) -> None:
        """A key gets limits, or others, or none; or it is revoked, and another one of its name is never made."""
        tenant_name, app, key = choose(NAMES), choose(APPS), choose(["k1", "k2"])
        name = f"{tenant_name}.{app}.{key}"
        if choose([False, False, False, True]):
            self.send(KeyRevoked(name, tenant_name))
        else:
            self.send(KeyLimited(name, choose([*LIMITED, Limits()])))

    def tend(self, choose: Choose) -> None:
        """What was decided about replicas is done, where they are the core's."""

    def replica_comes(self, choose: Choose) -> None:
        model = choose(sorted(MODELS))
        replicas = self.machine.state.sites[model].replicas.values()
        if sum(not replica.draining for replica in replicas) < 2 and len(replicas) < 4:
            self.ready(model)

    def ready(self, model: str) -> None:
        self.replicas += 1
        self.send(ReplicaReady(Replica(f"{model}.{self.replicas}", model, 2000, 4, KV[model])))

    def replica_goes(self, choose: Choose) -> None:
        """It drains, or is lost, and then each attempt on it has failed."""
        name = choose(["none", *sorted(name for site in self.machine.state.sites.values() for name in site.replicas)])
        if choose([True, False]):
            self.send(ReplicaDraining(name))
            return
        self.send(ReplicaLost(name))
        for each in [each for each in self.running if self.entry(each).replica_id == name]:
            self.send(self.end_of(each, Outcome.FAILED, 0, retry=choose([True, False])))

    def devices_change(self, choose: Choose) -> None:
        """Some of a pool's are lost; the next time they come back."""
        pool, quarters = choose(sorted(GPUS)), choose([3, 3, 2, 2, 1, 0])
        whole = self.machine.state.quotas[pool].capacity == GPUS[pool]
        self.send(DevicesChanged(pool, GPUS[pool] * quarters // 4 if whole else 10_000))

    def grant(self, choose: Choose) -> None:
        name, elastic_cap = choose(NAMES), choose([9000, 1000, 0])
        until = self.world.now + choose([30, 0]) * S
        self.grants.pop(name, None)
        if name in self.in_force.tenants and elastic_cap and until > self.world.now:
            self.grants[name] = (elastic_cap, until)
        self.send(Granted(name, elastic_cap, until))

    def rules_change(self, choose: Choose) -> None:
        self.in_force = self.any_rules(choose)
        self.grants = {name: grant for name, grant in self.grants.items() if name in self.in_force.tenants}
        self.send(Configured(self.in_force))

    # -- what came of it -----------------------------------------------------------------------------------------------

    def send(self, event: Event) -> list[Effect]:
        """Hand the machine an event, keep count of what came of it, and look whether the laws hold."""
        effects = self.world.send(event)
        match event:
            case Ended(name, attempt) | JobEnded(name, attempt) if self.running.get(name) == attempt:
                del self.running[name]
                if not event.retry:
                    del self.tasks[name]
            case Cancelled(name) if name not in self.running:
                self.tasks.pop(name, None)
            case _:
                pass
        for effect in effects:
            match effect:
                case Dispatch(name, attempt) | Start(name, attempt):
                    self.running[name] = attempt
                case Refuse(name) | Fail(name):
                    self.tasks.pop(name, None)
                case _:
                    pass
        self.laws(event, effects)
        return effects

    def laws(self, event: Event, effects: list[Effect]) -> None:
        """Look whether they hold after this event, of which that came."""

    @property
    def machine(self) -> Machine:
        return self.world.machine

    @property
    def waiting(self) -> list[str]:
        return [name for name in self.tasks if name not in self.running]

    def entry(self, name: str) -> Entry:
        return self.machine.tasks.entries[name]

    def begun(self, effects: list[Effect]) -> list[Entry]:
        """What was started by these effects."""
        starts = [effect for effect in effects if isinstance(effect, Dispatch | Start)]
        return [self.entry(each.request_id if isinstance(each, Dispatch) else each.job_id) for each in starts]

    def finish(self) -> None:
        """Everything that runs ends, until nothing follows; then what waits is cancelled."""
        while self.tasks:
            if self.running:
                self.send(self.end_of(next(iter(self.running)), Outcome.COMPLETED, 10))
            else:
                self.send(Cancelled(next(iter(self.tasks))))


def thorough(examples: int) -> settings:
    """Settings of the laws. No shrinking: a failure here takes longer to shrink than to understand."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    return settings(max_examples=examples, stateful_step_count=20, deadline=None, phases=phases)


def could_start(entry: Entry, now: int, gone: Entry | None = None) -> bool:
    """Whether what waits fits now: within every cap and limit, into what is free for it, and onto a place.

    Apart from the order: whose turn it is, and what is kept for somebody. `gone` runs, and is taken as not running.
    """
    site, node = site_of(entry), entry.flow.node
    if not (may_run(entry, gone) and has_quota(entry, gone)):
        return False
    if isinstance(site, Devices):
        freed = gone.ask if gone is not None and gone.flow.room is site else 0
        borrowed = node.use + entry.ask - max(node.use, node.guaranteed)
        if site.inventory is not None and (gone is not None or not site._placed(entry, now)):
            return False  # what would be free on which device without another one is not worked out here
        kept = 0 if site.owns(entry) else site.kept
        enough = site.free + freed - kept >= entry.ask
        return enough and (borrowed <= 0 or borrowed <= site._long_lendable(entry, now))
    avoided = site.avoided.get(entry.id, "")  # it failed on that node, and waits for another where there is one
    if all(each.draining or each.replica.node == avoided for each in site.replicas.values()):
        avoided = ""
    for spot in site.replicas.values():
        if avoided and spot.replica.node == avoided:
            continue
        here = gone is not None and gone.replica_id == spot.id
        slots, kv = (gone.sequences, gone.kv) if gone is not None and here else (0, 0)
        room = spot.slots_used - slots + entry.sequences <= spot.slots
        if spot.open and room and spot.kv_used - kv + entry.kv <= spot.kv_tokens:
            return True
    return False


def has_quota(entry: Entry, gone: Entry | None = None) -> bool:
    """Whether its tenant may use what it takes, and the pool has it."""
    for quota, its, amount in takes(entry):
        tree = quota if gone is None else without(quota, gone)
        leaf = tree.tenants[its.name]
        if leaf.running_max is not None and leaf.running >= leaf.running_max:
            return False
        if any(step.use + amount > step.cap for step in leaf.path()) or tree.free_for(leaf) < amount:
            return False
    return True


def may_run(entry: Entry, gone: Entry | None = None) -> bool:
    """Whether the limits of its app and of its key allow it now."""
    for tally in entry.tallies:
        held, running = tally.held, tally.running
        if gone is not None and tally in gone.tallies:
            running -= 1
            held = tuple(map(sub, held, holds(gone.task, gone.ask)))
        if tally.running_max is not None and running >= tally.running_max:
            return False
        if tally.held_max is not None and any(
            has + asked > most
            for has, asked, most in zip(held, holds(entry.task, entry.ask), tally.held_max, strict=True)
        ):
            return False
    return True


def site_of(entry: Entry) -> Serving | Devices:
    site = entry.flow.room
    assert isinstance(site, Serving | Devices)
    return site


def takes(entry: Entry) -> list[tuple[Quota, Node, int]]:
    """What something takes of each tree, at the site where its flow waits."""
    return [(site_of(entry).quota, entry.flow.node, entry.ask), *entry.also]


def without(quota: Quota, entry: Entry) -> Quota:
    """A copy of a tree in which something that runs does not run."""
    nodes = [*quota.tenants.values(), *quota.groups.values()]
    others = [(node.waiters, node.party) for node in nodes]
    for node in nodes:
        node.waiters, node.party = {}, None
    twin = copy.deepcopy(quota, {id(quota._policy): quota._policy})
    for node, its in zip(nodes, others, strict=True):
        node.waiters, node.party = its
    for tree, node, amount in takes(entry):
        if tree is quota:
            twin.give(twin.tenants[node.name], amount)
    return twin
