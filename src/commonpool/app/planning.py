"""Plans: which quotas the past advises, tested on its second half, as a configuration to apply.

It imports the simulator, which takes longer to import than most commands run: import it where it is used.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from commonpool.api.wire.advice import Plan, PoolPlan, SetupResult
from commonpool.app.past import Past
from commonpool.config import Sources, diff, parse_sources
from commonpool.config.requota import requota
from commonpool.core.advice import STEP_MILLI_GPU, Proposal
from commonpool.core.findings import findings
from commonpool.core.model import Policy, Tenant
from commonpool.core.pricing import exact_cost, round_half_up
from commonpool.simulator.backtest import backtest, setups, trial
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.workload import Workload

NOTHING_ASKED: Final = "no pool that lends was asked for anything; quotas of the others are what they own"


def plan(past: Past, progress: Callable[[int, int], None] = lambda *_: None) -> tuple[Plan, Sources]:
    """What the past advises, and the configuration that has it; `progress` hears how many pools of all are done.

    Raises SimulationError; ConfigError where the quotas contradict the configuration; RequotaError where its text
    cannot be edited.
    """
    if not past.works:
        raise SimulationError(NOTHING_ASKED)
    split = past.since_ns + (past.until_ns - past.since_ns) // 2
    pools = []
    for name, (policy, work) in past.works.items():
        pools.append(_pool(past, name, policy, work, split))
        progress(len(pools), len(past.works))
    quotas = {
        each.tenant: _allowed(each, past.config.policy.tenants[each.tenant], pool.advice.capacity)
        for pool in pools
        for each in pool.advice.proposals
    }
    changed = requota(past.sources, quotas)
    found = Plan(
        source=past.name,
        since_ns=past.since_ns,
        split_ns=split,
        until_ns=past.until_ns,
        pools=tuple(pools),
        changes=tuple(diff(past.config, parse_sources(changed))),
        findings=tuple(findings(past.models, past.tenants, past.until_ns - past.since_ns)),
    )
    return found, changed


def today(policy: Policy) -> dict[str, tuple[int, int]]:
    """(guaranteed, elastic_cap) of each tenant as they are."""
    return {name: (tenant.guaranteed, tenant.elastic_cap) for name, tenant in policy.tenants.items()}


def cost(policy: Policy, pool: str, milli_gpu_ns: int, at_ns: int) -> int:
    """What so much GPU time of a pool costs then, in micro-units; 0 where it has no price."""
    price = policy.prices.get(pool)
    return 0 if price is None else round_half_up(exact_cost(milli_gpu_ns, price.at(at_ns)))


def _pool(past: Past, name: str, policy: Policy, work: Workload, split: int) -> PoolPlan:
    halves = trial(work, policy, past.since_ns, split, past.until_ns)
    halves = msgspec.structs.replace(
        halves,
        series=tuple(
            msgspec.structs.replace(
                each,
                guaranteed=policy.tenants[each.tenant].guaranteed,
                elastic_cap=policy.tenants[each.tenant].elastic_cap,
                wait_ns_p99=past.waits_ns.get(each.tenant),
                patience_ns=_patience(policy, policy.tenants[each.tenant]),
            )
            for each in halves.series
        ),
    )
    advice, compared = setups(halves, policy.pools[name].milli_gpu, today(policy))
    length = past.until_ns - split
    return PoolPlan(
        pool=name,
        advice=advice,
        tested=tuple(
            SetupResult(
                setup.name,
                setup.capacity,
                cost(policy, name, setup.capacity * length, split),
                backtest(halves, setup),
            )
            for setup in compared
        ),
    )


def _patience(policy: Policy, tenant: Tenant) -> int:
    """The target of its most urgent tier, or the longest wait that it was promised."""
    tier = policy.tiers[max(tenant.priority, key=tenant.priority.__getitem__)]
    return tenant.max_wait_ns if tier.queue_target_ns is None else tier.queue_target_ns


def _allowed(proposal: Proposal, tenant: Tenant, capacity: int) -> tuple[int, int]:
    """In tenths of a GPU, and within what else the tenant's configuration says: reserved, headroom and hard_cap."""
    guaranteed, cap = proposal.guaranteed, proposal.elastic_cap
    if guaranteed > STEP_MILLI_GPU:
        guaranteed -= guaranteed % STEP_MILLI_GPU
    cap = min(capacity, -(-cap // STEP_MILLI_GPU) * STEP_MILLI_GPU)
    if tenant.hard_cap > tenant.elastic_cap:
        cap = min(cap, tenant.hard_cap)
    guaranteed = max(guaranteed, tenant.reserved, tenant.headroom)
    # What differs by less than a step is not worth a change.
    if abs(guaranteed - tenant.guaranteed) < STEP_MILLI_GPU:
        guaranteed = tenant.guaranteed
    if abs(cap - tenant.elastic_cap) < STEP_MILLI_GPU:
        cap = tenant.elastic_cap
    return guaranteed, max(cap, guaranteed)
