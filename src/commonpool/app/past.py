"""The past that advice is learned from: records of this product, as tasks of the pools that lend.

It imports the simulator, which takes longer to import than most commands run: import it where it is used.
"""

from collections.abc import Iterable

import msgspec

from commonpool.config import Config, Sources, parse_sources
from commonpool.core.findings import ModelUse, TenantUse
from commonpool.core.model import NS_PER_HOUR, Job, Outcome, Policy, Request, UsageRecord
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.demand import WINDOW_NS
from commonpool.simulator.figures import spread
from commonpool.simulator.workload import Arrival, Workload, workload

# Less shows neither a night nor a quiet hour, or is chance.
LENGTH_NS_MIN = 24 * NS_PER_HOUR
TASKS_MIN = 100
_JOBS = frozenset({"job", "replica"})


class TooLittleError(SimulationError):
    """Too few tasks are known, or of too short a time, to learn from."""


class Past(msgspec.Struct, frozen=True):
    """What was asked of each pool, whose policy has only that pool's tenants and models; times as they were.

    `waits_ns` are the 99th percentiles of waits by tenant, where records tell.
    """

    name: str
    sources: Sources
    config: Config
    since_ns: int
    until_ns: int
    works: dict[str, tuple[Policy, Workload]]
    waits_ns: dict[str, int] = {}
    models: tuple[ModelUse, ...] = ()
    tenants: tuple[TenantUse, ...] = ()


def of_records(records: list[UsageRecord], sources: Sources) -> Past:
    """What these records tell. Raises TooLittleError, and ConfigError."""
    config = parse_sources(sources)
    arrivals = _arrivals(records, config.policy)
    enough(arrivals, "the records")
    since, until = arrivals[0].at_ns, arrivals[-1].at_ns + 1
    waits: dict[str, list[int]] = {}
    for record in records:
        if record.outcome is Outcome.COMPLETED:
            waits.setdefault(record.tenant, []).append(record.wait_ns)
    return Past(
        name="own records",
        sources=sources,
        config=config,
        since_ns=since,
        until_ns=until,
        works=by_pool(workload("own records", arrivals), config.policy),
        waits_ns={tenant: spread(each).p99_ns for tenant, each in waits.items()},
        models=tuple(_models(records, config, since)),
        tenants=tuple(_tenants(records, config, since)),
    )


def enough(arrivals: list[Arrival], name: str) -> None:
    """Raises TooLittleError where these tasks are too few, or lie too close together."""
    length = arrivals[-1].at_ns - arrivals[0].at_ns if arrivals else 0
    if len(arrivals) < TASKS_MIN or length < LENGTH_NS_MIN:
        raise TooLittleError(
            f"there is too little to learn from: {len(arrivals):,} tasks within {length / NS_PER_HOUR:.1f} h are known"
            f" of {name}, and at least {TASKS_MIN} within {LENGTH_NS_MIN // NS_PER_HOUR} h are needed; ask again"
            " later"
        )


def _arrivals(records: Iterable[UsageRecord], policy: Policy) -> list[Arrival]:
    """Each task that ran, once, as its last attempt found it; tenants and models that are gone are left out."""
    last: dict[str, UsageRecord] = {}
    for record in records:
        known = last.get(record.request_id)
        if record.milli_gpu > 0 and record.run_ns > 0 and (known is None or record.attempt > known.attempt):
            last[record.request_id] = record
    arrivals = []
    for record in last.values():
        tenant = policy.tenants.get(record.tenant)
        if tenant is None or record.outcome is Outcome.REFUSED or record.pool != tenant.pool:
            continue
        tier = record.tier if record.tier in tenant.priority else max(tenant.priority, key=tenant.priority.__getitem__)
        if record.endpoint in _JOBS:
            job = Job(record.request_id, record.tenant, record.app, record.pool, tier, record.milli_gpu)
            arrivals.append(Arrival(record.arrived_ns, job, duration_ns=record.run_ns))
        elif record.model in policy.models_of(tenant):
            request = Request(
                record.request_id, record.tenant, record.app, record.model, tier, "chat", record.tokens_in
            )
            arrivals.append(Arrival(record.arrived_ns, request, record.tokens_in, 1, record.run_ns))
    return sorted(arrivals, key=lambda arrival: (arrival.at_ns, arrival.task.id))


def by_pool(work: Workload, policy: Policy) -> dict[str, tuple[Policy, Workload]]:
    """Those pools that lend and of which something was asked."""
    found = {}
    for name, pool in policy.pools.items():
        tenants = {each.name: each for each in policy.tenants.values() if each.pool == name}
        its = [arrival for arrival in work.arrivals if arrival.task.tenant in tenants]
        if pool.rule != "elastic" or not its:
            continue
        shapes = {model: shape for model, shape in policy.deployments.items() if shape.pool == name}
        bare = msgspec.structs.replace(pool, resources={}, placed=False)
        narrowed = msgspec.structs.replace(policy, pools={name: bare}, tenants=tenants, deployments=shapes, groups={})
        found[name] = narrowed, workload(work.name, its)
    return found


def _price(config: Config, pool: str, at_ns: int) -> int:
    price = config.policy.prices.get(pool)
    return 0 if price is None else max(0, price.at(at_ns))


def _models(records: Iterable[UsageRecord], config: Config, since: int) -> Iterable[ModelUse]:
    used: dict[str, dict[int, int]] = {}  # by model and interval; a run lies where it ended
    for record in records:
        if record.model in config.models:
            at = (record.arrived_ns + record.total_ns) // WINDOW_NS
            windows = used.setdefault(record.model, {})
            windows[at] = windows.get(at, 0) + record.milli_gpu_ns
    for name, model in config.models.items():
        windows = used.get(name, {})
        peak = max(windows.values(), default=0) // WINDOW_NS
        price = _price(config, model.pool, since)
        yield ModelUse(name, model.replicas, model.milli_gpu, sum(windows.values()), peak, price)


def _tenants(records: list[UsageRecord], config: Config, since: int) -> Iterable[TenantUse]:
    for name, tenant in config.policy.tenants.items():
        its = [record for record in records if record.tenant == name and record.outcome is not Outcome.REFUSED]
        failed = [record for record in its if record.outcome is Outcome.FAILED]
        requests = [record for record in its if record.endpoint not in _JOBS]
        yield TenantUse(
            tenant=name,
            attempts=len(its),
            failed=len(failed),
            failed_milli_gpu_ns=sum(record.milli_gpu_ns for record in failed),
            requests_milli_gpu_ns=sum(record.milli_gpu_ns for record in requests),
            tokens=sum(record.tokens_in + record.tokens_out for record in requests),
            micro_per_gpu_hour=_price(config, tenant.pool, since),
        )
