"""A simulation as a user asks for it: a configuration, a workload, a preset of replicas, and the policies to compare.

The model that is simulated gets the shape and the speed of the preset, and as many replicas as its pool's GPUs hold, or
replicas that follow demand within bounds. The rest of the configuration (tenants, groups, tiers, limits) is taken as it
is.
"""

import random
from collections.abc import Callable

import msgspec

from commonpool.config import Config, Sources, merge_tenant, parse_sources
from commonpool.core.model import NS_PER_HOUR, Deployment, Job, Policy, Replica, Request, Scaling, Tenant
from commonpool.simulator.checkers import Checked
from commonpool.simulator.cluster import Cluster, Engine, Serving
from commonpool.simulator.contract import Decides, Progress, SimulationError
from commonpool.simulator.demand import WINDOW_NS, Asks, Demand, by_demand
from commonpool.simulator.figures import Outcomes
from commonpool.simulator.fleet import Fleet
from commonpool.simulator.measures import Measures
from commonpool.simulator.policies import SharingPolicy, machine_for, prepared
from commonpool.simulator.presets import Preset
from commonpool.simulator.run import run
from commonpool.simulator.synthetic import Lengths, Profile, generate
from commonpool.simulator.traces import MONDAY_NS, Target
from commonpool.simulator.workload import Arrival, Workload

# Generated tenants ask for this much of their guarantee on average, four times as much at their peak as at night, and
# twice as much again in six bursts of ten minutes a day: enough to borrow at times and to lend at others.
_LOAD_PERCENT = 60
_PEAK_RATIO = 4.0
_BURSTS_PER_DAY = 6.0
_BURST_FACTOR = 2.0
_BURST_NS = NS_PER_HOUR // 6
_TOKENS_IN = Lengths(median=500, most=8_000)
_TOKENS_OUT = Lengths(median=150, most=2_000)
_SAMPLES = 2_000  # lengths from which a generated request's mean service time is taken


class Scenario(msgspec.Struct, frozen=True):
    """All that the compared policies have in common. `policy` is the operator's."""

    policy: Policy
    workload: Workload
    cluster: Cluster
    demand: Demand


def prepare(
    sources: Sources,
    workload_of: Callable[[Policy, str], Workload],
    preset: Preset,
    *,
    model: str | None = None,
    p60: bool = False,
    window_ns: int = WINDOW_NS,
    scaling: Scaling | None = None,
) -> Scenario:
    """The scenario of a configuration and a workload, which `workload_of` makes of its policy and the model.

    `model` is the one that requests ask for (None: the configuration's first). With `p60` guarantees are those of
    `by_demand`, and tenants that only the workload knows get the settings that a tenant has by default;
    `window_ns` is as for `Demand`. With `scaling` the model's replicas follow demand within its bounds.

    Raises ConfigError, TraceError, and SimulationError for what cannot be simulated.
    """
    config = parse_sources(sources)
    name = model or next(iter(config.policy.deployments))
    policy = served(config, name, preset, scaling)
    workload = workload_of(policy, name)
    if p60:
        policy = served(adopt(sources, workload, policy.deployments[name].pool), name, preset, scaling)
    if scaling is not None:
        return scenario(policy, workload, following(policy, preset), p60=p60, window_ns=window_ns)
    kinds = {isinstance(arrival.task, Job) for arrival in workload.arrivals}
    replicas = 0 if kinds == {True} else config.models[name].replicas if True in kinds else None
    return scenario(policy, workload, cluster(policy, preset, replicas), p60=p60, window_ns=window_ns)


def served(config: Config, model: str, preset: Preset, scaling: Scaling | None = None) -> Policy:
    """The configuration's policy, with nothing but this model, in the preset's shape.

    Raises SimulationError when the configuration has no such model, or its pool cannot hold one replica, or the most
    that there may be.
    """
    policy = config.policy
    known = policy.deployments.get(model)
    if known is None:
        raise SimulationError(f"The configuration has no model {model}; it has {', '.join(policy.deployments)}.")
    pool = policy.pools[known.pool]
    if pool.milli_gpu < preset.milli_gpu:
        raise SimulationError(
            f"A replica of preset {preset.name} holds {preset.milli_gpu} milli_gpu, and pool {pool.name} of model "
            f"{model} has {pool.milli_gpu}. Name a smaller preset, or give the pool more GPUs."
        )
    if scaling is not None and pool.milli_gpu < scaling.replicas_max * preset.milli_gpu:
        raise SimulationError(
            f"{scaling.replicas_max} replicas of preset {preset.name} hold {scaling.replicas_max * preset.milli_gpu} "
            f"milli_gpu, and pool {pool.name} has {pool.milli_gpu}. Allow at most {pool.milli_gpu // preset.milli_gpu}."
        )
    deployment = Deployment(
        model,
        preset.name,
        pool.name,
        preset.milli_gpu,
        preset.slots,
        preset.kv_tokens,
        preset.context_tokens,
        scaling=scaling,
    )
    return msgspec.structs.replace(policy, deployments={model: deployment})


def target(policy: Policy, model: str) -> Target:
    """What the records of a trace ask for: this model, or GPUs of its pool, in their tenant's most urgent tier.

    A trace without tenants is split among those who may use the model, in proportion to their guarantees.
    """
    allowed = [tenant for tenant in policy.tenants.values() if model in policy.models_of(tenant)]
    usual = [tier for tier in ("interactive", "batch") if tier in policy.tiers]
    return Target(
        model=model,
        pool=policy.deployments[model].pool,
        tier=usual[0] if usual else next(iter(policy.tiers)),
        tiers={tenant.name: _tiers(tenant)[-1] for tenant in policy.tenants.values()},
        weights={tenant.name: max(1, tenant.guaranteed) for tenant in allowed},
    )


def adopt(sources: Sources, workload: Workload, pool: str) -> Config:
    """The configuration with a tenant of default settings for each one that only the workload knows."""
    known = parse_sources(sources).policy.tenants
    for name in workload.tenants:
        if name not in known:
            sources = merge_tenant(sources, name, f'tenant: {{pool: "{pool}"}}\n')
    return parse_sources(sources)


def scenario(
    policy: Policy, workload: Workload, cluster: Cluster, *, p60: bool = False, window_ns: int = WINDOW_NS
) -> Scenario:
    """Everything that is the same for each policy. Raises SimulationError for a tenant that cannot be simulated.

    Jobs are of their tenant's least urgent tier. `p60` replaces guarantees and caps by those of `by_demand`, for which
    demand is taken in windows of `window_ns`.
    """
    if not workload.arrivals:
        raise SimulationError(f"{workload.name} has no arrivals that can be simulated.")
    strangers = [name for name in workload.tenants if name not in policy.tenants]
    if strangers:
        raise SimulationError(
            f"{workload.name} has tenants that the configuration lacks: {_listed(strangers)}. Add them to it, or give "
            "guarantees by demand (p60), which makes tenants of them."
        )
    workload = _tiered(workload, policy)
    misplaced = sorted({a.task.tenant for a in workload.arrivals if not _allowed(a, policy)})
    if misplaced:
        raise SimulationError(
            f"{_listed(misplaced)} may not use what {workload.name} asks for. Name a model that all of them may use."
        )
    demand = Demand(workload, policy, service(policy, cluster), window_ns)
    if p60:
        policy = by_demand(policy, demand, workload)
    return Scenario(policy, workload, cluster, demand)


def cluster(policy: Policy, preset: Preset, most: int | None = None) -> Cluster:
    """As many replicas of each deployment as its pool's GPUs hold, or `most` where jobs need GPUs too."""
    replicas = []
    for name, deployment in policy.deployments.items():
        count = policy.pools[deployment.pool].milli_gpu // deployment.milli_gpu
        for number in range(count if most is None else min(count, most)):
            replica = Replica(f"{name}-{number}", name, deployment.milli_gpu, deployment.slots, deployment.kv_tokens)
            replicas.append(Serving(replica, preset.speed, deployment.context_tokens))
    return Cluster(tuple(replicas))


def following(policy: Policy, preset: Preset) -> Cluster:
    """Replicas that follow demand: the machine has them started."""
    return Cluster(
        engines={
            name: Engine(preset.speed, deployment.context_tokens) for name, deployment in policy.deployments.items()
        }
    )


def service(policy: Policy, cluster: Cluster) -> Callable[[Arrival], int]:
    """How long a task takes that starts at once, in nanoseconds.

    A request is counted as on a replica that is full of its like: while it runs each of the others ends once, and the
    prompt of the one that takes its place holds it up. So its use is the part of the replica that it really costs.
    """
    speeds = {serving.replica.model: serving.speed for serving in cluster.replicas}
    speeds |= {model: engine.speed for model, engine in cluster.engines.items()}
    asks = Asks(policy)

    def service_ns(arrival: Arrival) -> int:
        task = arrival.task
        if isinstance(task, Job):
            return arrival.duration_ns
        speed = speeds.get(task.model)
        if speed is None:
            return 0
        deployment = policy.deployments[task.model]
        batch = min(deployment.slots, max(1, deployment.milli_gpu // asks.milli_gpu(task)))
        step = speed.step_ns + batch * speed.step_sequence_ns
        return batch * arrival.tokens_in * speed.prefill_token_ns + max(0, arrival.tokens_out - 1) * step

    return service_ns


def generated(policy: Policy, cluster: Cluster, model: str, length_ns: int, seed: int) -> Workload:
    """Demand of the configuration's own tenants who may use the model: days with a peak each, and bursts."""
    tenants = [t for t in policy.tenants.values() if model in policy.models_of(t)]
    profiles = []
    for number, tenant in enumerate(tenants):
        tier = _tiers(tenant)[-1]
        quota = (tenant.guaranteed or tenant.elastic_cap // len(tenants)) * _LOAD_PERCENT // 100
        request = Request("", tenant.name, "default", model, tier, "chat", _TOKENS_IN.median)
        gpu_ns = Asks(policy).milli_gpu(request) * _mean_service_ns(request, service(policy, cluster), seed)
        profiles.append(
            Profile(
                tenant=tenant.name,
                app=request.app,
                model=model,
                tier=tier,
                requests_per_hour=quota * NS_PER_HOUR / gpu_ns,
                tokens_in=_TOKENS_IN,
                tokens_out=_TOKENS_OUT,
                peak_hour=24 * number / len(tenants),
                peak_ratio=_PEAK_RATIO,
                bursts_per_day=_BURSTS_PER_DAY,
                burst_factor=_BURST_FACTOR,
                burst_ns=_BURST_NS,
            )
        )
    return generate("generated", profiles, MONDAY_NS, length_ns, seed)


def simulate(
    shared: Scenario, sharing: SharingPolicy, *, seed: int = 0, progress: Progress | None = None, check_every: int = 0
) -> Outcomes:
    """What one policy makes of the scenario. `check_every` above 0 checks the core's laws so often, in events.

    Raises SimulationError when what waits can never run.
    """
    machine = machine_for(sharing, shared.policy)
    decides: Decides = prepared(sharing, shared.policy, machine)
    checked: Checked | None = None
    if check_every:
        checked = Checked(decides, machine, check_every, shared.policy if sharing.promises else None)
        decides = checked
    decides = fleet = Fleet(decides)
    measures = Measures(shared.workload, shared.policy, shared.demand)
    end = run(shared.workload, decides, shared.cluster, measures, seed=seed, progress=progress)
    if checked:
        checked.finish(end)
    outcomes = measures.outcomes(sharing)
    if not shared.cluster.engines:
        return outcomes
    fleet.finish(end)
    held = fleet.held_milli_gpu_ns(shared.demand.start_ns, shared.demand.end_ns)
    return msgspec.structs.replace(outcomes, held_milli_gpu_ns=held, starts=len(fleet.lives))


def _mean_service_ns(request: Request, service_ns: Callable[[Arrival], int], seed: int) -> int:
    chance = random.Random(f"{seed}:service")  # noqa: S311 - not for secrets
    lengths = ((_TOKENS_IN.draw(chance), _TOKENS_OUT.draw(chance)) for _ in range(_SAMPLES))
    return max(
        1, sum(service_ns(Arrival(0, request, tokens_in, tokens_out)) for tokens_in, tokens_out in lengths) // _SAMPLES
    )


def _tiers(tenant: Tenant) -> list[str]:
    """Its tiers, the least urgent first; ties in their order."""
    return sorted(tenant.priority, key=tenant.priority.__getitem__)


def _tiered(workload: Workload, policy: Policy) -> Workload:
    """Jobs do not wait for anybody at a screen."""
    if not any(isinstance(arrival.task, Job) for arrival in workload.arrivals):
        return workload
    tiers = {name: _tiers(policy.tenants[name])[0] for name in workload.tenants}
    arrivals = [
        msgspec.structs.replace(arrival, task=msgspec.structs.replace(arrival.task, tier=tiers[arrival.task.tenant]))
        if isinstance(arrival.task, Job)
        else arrival
        for arrival in workload.arrivals
    ]
    return msgspec.structs.replace(workload, arrivals=arrivals)


def _allowed(arrival: Arrival, policy: Policy) -> bool:
    task = arrival.task
    tenant = policy.tenants[task.tenant]
    if isinstance(task, Job):
        return task.pool == tenant.pool
    deployment = policy.deployments.get(task.model)
    return (
        deployment is not None
        and deployment.pool == tenant.pool
        and (tenant.models is None or task.model in tenant.models)
        and task.tier in tenant.priority
    )


def _listed(names: list[str]) -> str:
    shown = 5
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
