"""The replicas of a deployment follow demand: how many there are to be, where each starts, which drain, which end.

A replica holds its devices from the moment it is to start until it is reported lost, so that nothing else is put there.
One that cannot start is tried again after a while, each time a longer one; after `FAILURES_MAX` times in a row the
circuit is open: nobody is kept waiting for the model, its fallback answers, and a start is tried now and then.
"""

from typing import Final

from commonpool.core.crew import BACKOFF_MIN_NS, HEALTHY_NS, Starting
from commonpool.core.effects import Effect, StartReplica, StopReplica
from commonpool.core.entries import Entry
from commonpool.core.model import NS_PER_S, Cause, Deployment, Hardware, Replica
from commonpool.core.queueing import Flow
from commonpool.core.scaling import Decision, Load, Short, Why
from commonpool.core.sites import Running, Serving
from commonpool.core.state import State

# How long streams may go on when a replica drains. An engine that says nothing is given up long before.
DRAIN_NS: Final = 600 * NS_PER_S
# A node's CPU, memory or network is short from here, in thousandths: more replicas there would only share it.
SHORT_MILLI: Final = 950
# Of the first tokens since the scaler last looked, one in so many may be late.
LATE_ONE_IN: Final = 10
# What another replica does not help: it waits for quota.
FOR_QUOTA: Final = (Cause.ELASTIC_CAP, Cause.CONCURRENCY, Cause.POOL_FULL, Cause.BORROWING_DENIED)


def builds(deployment: Deployment) -> list[str]:
    """What each replica is made of, by index; one that differs in it is another one. Empty: all are alike."""
    return [f"{deployment.engine} {engine.url}" for engine in deployment.attached]


def reconcile(state: State, site: Serving, now: int, effects: list[Effect]) -> None:
    """Begin what brings a deployment's replicas to what they should be.

    Not before the first tick: until then it is told what runs from before.
    """
    if not state.begun:
        return
    deployment = state.policy.deployments.get(site.name)
    if deployment is None or not (deployment.scaling or deployment.attached):
        _keep_nothing(state, site)
        if deployment is None and site.scaled:
            _retire(site, now, effects)
        return
    crew = site.crew
    # 1. How many there are, of those that are made as they should be.
    each = builds(deployment)
    right = frozenset(each or [deployment.engine])
    serving = [running for running in site.replicas.values() if not running.draining]
    current = [running for running in serving if running.build in right and _at_home(state, running, deployment)]
    outdated = [running for running in serving if running not in current]
    coming = []
    for starting in crew.starting.values():
        here = starting.pool == deployment.pool and not state.stray(starting.replica)
        if starting.build not in right or not here:
            _give_up(starting, effects)
        elif not starting.stopping:
            coming.append(starting)
    # 2. How many there should be.
    decision = _decide(state, site, deployment, len(current), len(coming), now)
    crew.wanted, crew.why = decision.replicas, decision.reason
    crew.unplaced = ""
    # 3. Fewer: those that are not up yet, the newest first, then those with the least on them.
    extra = max(0, len(current) + len(coming) - crew.wanted)
    for starting in coming[::-1][:extra]:
        _give_up(starting, effects)
    _let_go(site, current, extra - len(coming), now, effects)
    # 4. More, as far as there is room; what is missing then has a claim on what frees.
    missing = crew.wanted - len(current) - len(coming)
    started = 0
    if missing > 0:
        free = _free_indexes(current, coming, each, missing)
        started = _more(state, site, deployment, free, now, effects)
    _keep(state, site, deployment, len(current) + len(coming) + started)
    # 5. The old ones go as the new ones come; where there is no room for both they go first, one at a time.
    surplus = len(current) + len(outdated) - crew.wanted
    if surplus <= 0 and crew.unplaced and not (coming or started or _going(site)) and _possible(state, deployment):
        surplus = 1
        outdated = [running for running in outdated if not state.stray(running.replica)]  # what they hold helps nobody
    _let_go(site, outdated, surplus, now, effects)


def _at_home(state: State, running: Running, deployment: Deployment) -> bool:
    """Whether it is in its model's pool, and on a node that is there."""
    return running.pool == deployment.pool and not state.stray(running.replica)


def _more(
    state: State, site: Serving, deployment: Deployment, indexes: list[int], now: int, effects: list[Effect]
) -> int:
    """Start replicas with these indexes, as many as find a place; return how many."""
    crew = site.crew
    if now < crew.retry_at:
        return 0
    each = builds(deployment)
    for at, index in enumerate(indexes):
        build = each[index] if each else deployment.engine
        if not _start(state, site, deployment, index, build, now, effects):
            return at
    return len(indexes)


def _retire(site: Serving, now: int, effects: list[Effect]) -> None:
    """The policy has no such deployment any more."""
    for running in tuple(site.replicas.values()):
        if not running.draining:
            drain(site, running, now, effects)
    for starting in site.crew.starting.values():
        _give_up(starting, effects)


def drain(site: Serving, running: Running, now: int, effects: list[Effect]) -> None:
    """It gets nothing new; it ends when nothing runs on it any more, or its time is over."""
    running.draining = True
    running.drain_until = now + DRAIN_NS
    site.count_free_slots()
    stop_drained(site, now, effects)


def stop_drained(site: Serving, now: int, effects: list[Effect]) -> None:
    """End those that have drained."""
    site.draining = False
    for running in site.replicas.values():
        if not running.drain_until or running.stopping or running.lost:
            continue
        if running.slots_used and now < running.drain_until:
            site.draining = True
        else:
            running.stopping = True
            effects.append(StopReplica(running.id))


def ready(state: State, site: Serving, replica: Replica, engine: str | None, now: int) -> None:
    """A replica takes requests from now on: one that was started, or one that was there before this machine."""
    crew = site.crew
    starting = crew.starting.pop(replica.id, None)
    running = Running(replica, site.quota.pool if starting is None else starting.pool, now)
    if starting is not None:
        running.index, running.build = starting.index, starting.build
        crew.starts.learn(now - starting.since)
        crew.healthy()
        if starting.stopping:
            running.draining = running.stopping = True
            running.drain_until = now
    else:
        running.index, number = numbers(replica.id)
        crew.numbers[running.index] = max(number, crew.numbers.get(running.index, 0))
        deployment = state.policy.deployments.get(site.name)
        if engine is not None:
            running.build = engine
        elif deployment is not None:
            running.build = deployment.engine
        inventory = state.inventories.get(site.quota.pool)
        if inventory is not None and replica.devices:
            owner = "" if deployment is None else owner_of(state, deployment)
            inventory.adopt(replica.id, owner, replica.devices, _each_milli(replica), weights=replica.model)
    inventory = state.inventories.get(running.pool)
    held = None if inventory is None else inventory.held(replica.id)
    running.memory_mib = 0 if held is None else sum(held.memory_mib)
    site.replicas[replica.id] = running
    site.count_free_slots()
    state.count_devices()


def lost(state: State, site: Serving, replica_id: str, reason: str, now: int) -> None:
    """A replica is gone, started or not; its devices are free again when nothing of it is reported to run any more."""
    crew = site.crew
    starting = crew.starting.pop(replica_id, None)
    if starting is not None:
        give_back(state, replica_id)
        if reason and not starting.stopping and not state.stray(starting.replica):  # it is the node that failed
            crew.failed(reason, now)
    running = site.replicas.get(replica_id)
    if running is not None and not running.lost:
        asked = running.draining and running.drain_until > 0
        running.draining = running.lost = True
        if not running.slots_used:
            del site.replicas[replica_id]
            give_back(state, replica_id)
        if reason and not asked and not state.stray(running.replica):
            if now - running.since >= HEALTHY_NS:
                crew.healthy()
                crew.backoff_ns = BACKOFF_MIN_NS
            crew.failed(reason, now)
    site.count_free_slots()
    state.count_devices()
    deployment = state.policy.deployments.get(site.name)
    if deployment is not None and site.scaled:
        there = sum(not each.draining for each in site.replicas.values())
        there += sum(not each.stopping for each in crew.starting.values())
        _keep(state, site, deployment, there)


def of(state: State, site: Serving, replica_id: str, now: int) -> Running:
    """The replica on which a request runs; one that is not known has been lost, and goes when that request ends."""
    running = site.replicas.get(replica_id)
    if running is None:
        shape = site.shape
        replica = Replica(replica_id, site.name, shape.milli_gpu, shape.slots, shape.kv_tokens)
        running = Running(replica, site.quota.pool, now)
        running.draining = running.lost = True
        site.replicas[replica_id] = running
        state.count_devices()
    return running


def give_back(state: State, replica_id: str) -> None:
    """Its devices are free, whichever pool they are in."""
    for inventory in state.inventories.values():
        inventory.give(replica_id)


def numbers(replica_id: str) -> tuple[int, int]:
    """The index and the incarnation in a replica's id, `<model>-<index>.<incarnation>`; (0, 0) for another's."""
    _, _, tail = replica_id.rpartition("-")
    index, _, incarnation = tail.partition(".")
    return (int(index), int(incarnation)) if index.isdecimal() and incarnation.isdecimal() else (0, 0)


# -- inside ------------------------------------------------------------------------------------------------------------


def _going(site: Serving) -> bool:
    """Whether one of them will give back what it holds."""
    draining = any(running.drain_until or running.lost for running in site.replicas.values())
    return draining or any(starting.stopping for starting in site.crew.starting.values())


def _let_go(site: Serving, some: list[Running], count: int, now: int, effects: list[Effect]) -> None:
    """So many of them drain: those with the least on them, the newest first."""
    for running in sorted(some, key=_least_missed)[: max(0, count)]:
        drain(site, running, now, effects)


def _give_up(starting: Starting, effects: list[Effect]) -> None:
    """It is not wanted any more, before it was ready."""
    if not starting.stopping:
        starting.stopping = True
        effects.append(StopReplica(starting.replica.id))


def _free_indexes(current: list[Running], coming: list[Starting], each: list[str], count: int) -> list[int]:
    """The smallest indexes that are free; of attached engines those of the engines that are not there."""
    if each:
        there = [running.build for running in current] + [starting.build for starting in coming]
        return [index for index, build in enumerate(each) if build not in there]
    taken = [running.index for running in current] + [starting.index for starting in coming]
    return [index for index in range(len(taken) + count) if index not in taken][:count]


def _keep(state: State, site: Serving, deployment: Deployment, there: int) -> None:
    """Keep what frees for the replicas that are missing: up to the fewest, or for one within a guarantee.

    Jobs that borrow would hold it for long. For what cannot be started, or never placed, nothing is kept.
    """
    _keep_nothing(state, site)
    crew, scaling = site.crew, deployment.scaling
    least = there + 1 if crew.within else 0
    if deployment.attached:
        least = max(least, len(deployment.attached))
    elif scaling is not None and scaling.residency in ("resident", "standby"):
        least = max(least, scaling.replicas_min)
    missing = min(crew.wanted, least) - there
    if missing > 0 and not crew.broken and _possible(state, deployment):
        state.devices[deployment.pool].kept_for_replicas[site.name] = missing * deployment.milli_gpu


def _keep_nothing(state: State, site: Serving) -> None:
    for devices in state.devices.values():
        devices.kept_for_replicas.pop(site.name, None)


def _possible(state: State, deployment: Deployment) -> bool:
    """Whether a replica could have a place if nothing else ran."""
    inventory = state.inventories.get(deployment.pool)
    if inventory is not None and not deployment.attached:
        return not isinstance(inventory.footprint(_hardware(deployment), {}), str)
    return deployment.milli_gpu <= state.devices[deployment.pool].quota.capacity


def _hardware(deployment: Deployment) -> Hardware:
    return deployment.hardware or Hardware(milli_gpu=deployment.milli_gpu)


def _least_missed(running: Running) -> tuple[int, int]:
    return running.slots_used, -running.index


def _each_milli(replica: Replica) -> int:
    return replica.milli_gpu // max(1, len(replica.devices))


def _start(
    state: State, site: Serving, deployment: Deployment, index: int, build: str, now: int, effects: list[Effect]
) -> bool:
    """Place one more replica and have it started, or note why it has no place."""
    crew = site.crew
    devices = state.devices[deployment.pool]
    number = crew.numbers.get(index, 0) + 1
    replica_id = f"{deployment.model}-{index}.{number}"
    node = ""
    held: tuple[str, ...] = ()
    inventory = state.inventories.get(deployment.pool)
    if devices.free < deployment.milli_gpu:
        crew.unplaced = (
            f"A replica needs {deployment.milli_gpu} milli_gpu, and {max(0, devices.free)} of pool {deployment.pool} "
            "are held by nobody."
        )
        return False
    if deployment.attached and inventory is not None:
        held = deployment.attached[index].devices
        inventory.adopt(replica_id, owner_of(state, deployment), held, deployment.milli_gpu // max(1, len(held)))
    elif inventory is not None:
        asked = inventory.footprint(_hardware(deployment), {})
        if isinstance(asked, str):
            crew.unplaced = asked
            return False
        owner = owner_of(state, deployment)
        placement = inventory.find(asked, owner, now, None, deployment.model)
        if placement is None:
            crew.unplaced = inventory.why_not(asked, owner, now, None)
            return False
        inventory.asked(asked)
        inventory.take(replica_id, owner, placement)
        node, held = placement.node, placement.devices
    replica = Replica(
        replica_id, deployment.model, deployment.milli_gpu, deployment.slots, deployment.kv_tokens, node, held
    )
    crew.numbers[index] = number
    crew.starting[replica_id] = Starting(replica, deployment.pool, index, build, now)
    state.count_devices()
    effects.append(StartReplica(replica, index))
    return True


def owner_of(state: State, deployment: Deployment) -> str:
    """Whose work its replicas do: the one tenant that may use the model, "" where several may."""
    name = deployment.model
    users = [tenant for tenant, account in state.accounts.items() if name in account.models]
    return users[0] if len(users) == 1 else ""


def _decide(state: State, site: Serving, deployment: Deployment, current: int, coming: int, now: int) -> Decision:
    if deployment.attached:
        return Decision(len(deployment.attached), Why.MINIMUM)
    assert deployment.scaling is not None  # noqa: S101 - else nothing is decided here
    return site.crew.scaler.decide(deployment.scaling, load(state, site, deployment, current, coming, now))


def load(state: State, site: Serving, deployment: Deployment, ready: int, starting: int, now: int) -> Load:
    """What the scaler is to know of a deployment, since it was last asked."""
    crew = site.crew
    # 1. What runs, and how much of it is borrowed.
    running = kv_used = kv_tokens = draining = 0
    for each in site.replicas.values():
        running += each.slots_used
        if each.draining:
            draining += 1
        else:
            kv_used += each.kv_used
            kv_tokens += each.kv_tokens
    borrowed = 0
    # 2. What waits for want of replicas.
    waiting = within = longest_ns = longest_within_ns = asked = 0
    target_ns = 0
    for flow in site.line.flows.values():
        node = flow.node
        borrowed += max(0, node.over_guarantee - flow.account.by_jobs)
        asked += flow.asked
        length = flow.length - flow.idle_length
        if not length or (flow.parked or flow.cause in FOR_QUOTA):
            continue
        waiting += length
        head = flow.earliest()
        if head.priority < 0:  # nothing else of it waits: a replica is wanted, and nobody is promised when
            continue
        waited_ns = now - head.arrived
        longest_ns = max(longest_ns, waited_ns)
        if node.entitled:
            within += min(length, max(1, (node.guaranteed - node.use) // max(1, head.ask)))
            longest_within_ns = max(longest_within_ns, waited_ns)
        promised_ns = _promised(state, flow, head)
        target_ns = min(target_ns, promised_ns) if target_ns else promised_ns
    crew.within = within
    # 3. What is learned, and what is expected.
    crew.demand.observe(site.asked + asked, now)
    start_ns = crew.starts.expected
    usual = crew.demand.usual(now, start_ns) or 0
    late = crew.late_tokens * LATE_ONE_IN > crew.first_tokens
    arrivals, crew.arrivals = crew.arrivals, 0
    crew.first_tokens = crew.late_tokens = 0
    milli = max(1, deployment.milli_gpu)
    return Load(
        now=now,
        slots=deployment.slots,
        milli_gpu=milli,
        ready=ready,
        starting=starting,
        draining=draining,
        running=running,
        running_within=max(0, running - borrowed * deployment.slots // milli),
        waiting=waiting,
        waiting_within=within,
        longest_wait_ns=longest_within_ns or longest_ns,
        target_wait_ns=target_ns,
        arrivals=arrivals,
        service_ns=site.runs.expected,
        start_ns=start_ns,
        kv_used=1000 * kv_used // kv_tokens if kv_tokens else 0,
        first_token_late=late,
        forecast=usual * deployment.slots // milli,
        host_short=host_short(state, site),
        claimed=state.devices[deployment.pool].wanted_within(now),
    )


def _promised(state: State, flow: Flow, head: Entry) -> int:
    """How long the head may wait: what its tier promises, else half of its tenant's max_wait."""
    tier = state.policy.tiers.get(head.task.tier)
    if tier is not None and tier.queue_target_ns is not None:
        return tier.queue_target_ns
    return max(1, flow.account.max_wait_ns // 2)


def host_short(state: State, site: Serving) -> Short:
    """What all nodes of its replicas are out of. Of attached engines that is not known: they run on other machines."""
    deployment = state.policy.deployments.get(site.name)
    if deployment is None or deployment.attached:
        return Short.NONE
    nodes = {running.replica.node: None for running in site.replicas.values() if not running.draining}
    hosts = [state.hosts[node] for node in nodes if node in state.hosts]
    if not hosts or len(hosts) < len(nodes):
        return Short.NONE
    if min(host.cpu for host in hosts) >= SHORT_MILLI:
        return Short.CPU
    if min(host.memory for host in hosts) >= SHORT_MILLI:
        return Short.MEMORY
    return Short.NETWORK if min(host.network for host in hosts) >= SHORT_MILLI else Short.NONE
