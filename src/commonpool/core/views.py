"""Pictures of the machine's state, for people and their tools: tenants, pools, loans, limits. They change nothing."""

import enum

import msgspec

from commonpool.core.books import Task
from commonpool.core.breaker import Circuit
from commonpool.core.entries import Entry
from commonpool.core.limits import Rate
from commonpool.core.model import Job, Residency
from commonpool.core.pricing import round_half_up
from commonpool.core.replicas import FOR_QUOTA, host_short
from commonpool.core.scaling import Short
from commonpool.core.sites import Serving
from commonpool.core.state import State


class TenantView(msgspec.Struct, frozen=True):
    """A tenant now, in milli_gpu and requests. `due` is what it lent and needs back.

    `granted_until` is when the grant ends that `elastic_cap` comes from, None where it is the policy's.
    """

    tenant: str
    pool: str
    guaranteed: int
    elastic_cap: int
    in_use: int
    lent: int
    borrowed: int
    due: int
    running: int
    waiting: int
    granted_until: int | None = None


class PoolView(msgspec.Struct, frozen=True):
    """A pool now, in milli_gpu. `scaled` says that the guarantees exceed the capacity and were cut pro rata."""

    pool: str
    capacity: int
    in_use: int
    unowned: int
    scaled: bool


class LoanView(msgspec.Struct, frozen=True):
    """A loan that runs, for a request or a `job`. `due`: the lender has work waiting and needs it back.

    `return_ns` is when it is expected back, by how long such work takes; None where nothing is known of that.
    """

    lender: str
    borrower: str
    request_id: str
    milli_gpu: int
    start_ns: int
    due: bool
    job: bool = False
    return_ns: int | None = None


class RateView(msgspec.Struct, frozen=True):
    """A limit a minute: the most, what is left now, and when it is whole again."""

    limit: int
    remaining: int
    reset_ns: int


class BudgetView(msgspec.Struct, frozen=True):
    """A tenant's budget now, in micro-units. `held` is expected of what is open; `soft`: its soft limit is reached.

    `until_ns` is when the billing period ends; 0 where that is not known.
    """

    limit: int
    spent: int
    held: int
    soft: bool
    until_ns: int


class Bottleneck(enum.StrEnum):
    """What requests of a model wait for."""

    NONE = "none"
    GPU = "gpu"  # every slot of its replicas is taken
    KV_MEMORY = "kv_memory"
    CPU = "cpu"
    MEMORY = "memory"
    NETWORK = "network"
    START_UP = "start_up"  # a replica is on its way
    QUOTA = "quota"


class ModelView(msgspec.Struct, frozen=True):
    """A model now. `wanted` is how many replicas it should have and `why`; counts of replicas, `waiting` of requests.

    `broken`: none could be started several times in a row. `error` is why the last one was lost or did not start,
    `unplaced` why another one finds no place; "" where there is nothing to say.
    """

    model: str
    pool: str
    residency: Residency
    wanted: int
    why: str
    ready: int
    starting: int
    draining: int
    waiting: int
    bottleneck: Bottleneck
    broken: bool
    error: str
    unplaced: str


def models(state: State) -> list[ModelView]:
    """Every model of the policy, in its order."""
    found = []
    for name, deployment in state.policy.deployments.items():
        site = state.sites[name]
        crew = site.crew
        draining = sum(running.draining for running in site.replicas.values())
        found.append(
            ModelView(
                model=name,
                pool=deployment.pool,
                residency=deployment.scaling.residency if deployment.scaling is not None else "resident",
                wanted=crew.wanted,
                why=crew.why,
                ready=len(site.replicas) - draining,
                starting=len(crew.starting),
                draining=draining,
                waiting=site.line.waiting,
                bottleneck=_bottleneck(state, site),
                broken=crew.broken and not site.ready,
                error=crew.error,
                unplaced=crew.unplaced,
            )
        )
    return found


def _bottleneck(state: State, site: Serving) -> Bottleneck:
    waiting = [flow for flow in site.line.flows.values() if flow.length]
    if not waiting:
        return Bottleneck.NONE
    if all(flow.parked or flow.cause in FOR_QUOTA for flow in waiting):
        return Bottleneck.QUOTA
    short = host_short(state, site)
    if short is not Short.NONE:
        return Bottleneck(str(short))
    if site.crew.starting or not site.ready:
        return Bottleneck.START_UP
    return Bottleneck.KV_MEMORY if site.free_slots > 0 else Bottleneck.GPU


def draining(state: State, replica_id: str) -> bool:
    """Whether a replica gets nothing new."""
    return any(s.replicas[replica_id].draining for s in state.sites.values() if replica_id in s.replicas)


def failing(state: State, replica_id: str) -> bool:
    """Whether a replica gets nothing new, or one request at a time, since attempts on it failed."""
    found = [s.replicas[replica_id] for s in state.sites.values() if replica_id in s.replicas]
    return any(running.breaker.circuit is not Circuit.CLOSED for running in found)


def tenants(state: State) -> list[TenantView]:
    """Every tenant of the policy, in its order."""
    views = []
    for name, tenant in state.policy.tenants.items():
        node = state.quotas[tenant.pool].tenants[name]
        loans = state.loans[tenant.pool]
        account = state.accounts[name]
        views.append(
            TenantView(
                tenant=name,
                pool=tenant.pool,
                guaranteed=node.guaranteed,
                elastic_cap=node.cap,
                in_use=node.use,
                lent=loans.lent(name),
                borrowed=loans.borrowed(name),
                due=due(state, name),
                running=node.running,
                waiting=account.waiting,
                granted_until=state.grants[name][1] if name in state.grants else None,
            )
        )
    return views


def pools(state: State) -> list[PoolView]:
    return [PoolView(q.pool, q.capacity, q.use, q.unowned, q.scaled) for q in state.quotas.values()]


def loans(state: State) -> list[LoanView]:
    """The loans that run, oldest first."""
    views = [
        LoanView(
            loan.lender,
            loan.borrower,
            loan.task.id,
            loan.milli_gpu,
            loan.start_ns,
            due(state, loan.lender) > 0,
            loan.task.id in state.devices[pool].running,
            _return(state, loan.task),
        )
        for pool, books in state.loans.items()
        for loan in books.open_loans()
    ]
    return sorted(views, key=lambda view: (view.start_ns, view.request_id, view.lender))


def _return(state: State, borrower: Task) -> int | None:
    """When what it runs on is expected to be free again."""
    if not isinstance(borrower, Entry):
        return None
    task = borrower.task
    if isinstance(task, Job):
        lasts_ns = task.expected_ns or borrower.flow.expected.get(task.app, 0)
    else:
        lasts_ns = state.sites[task.model].runs.careful if task.model in state.sites else 0
    return borrower.dispatched + lasts_ns if lasts_ns else None


def in_flight(state: State, replica_id: str) -> int:
    """Sequences that run on a replica."""
    return sum(s.replicas[replica_id].slots_used for s in state.sites.values() if replica_id in s.replicas)


def rates(state: State, tenant: str, now: int, app: str = "", key: str = "") -> tuple[RateView | None, RateView | None]:
    """Requests a minute and tokens a minute: of those of a tenant, its app and a key that it has, the tightest.

    That is the one of which least is left.
    """
    account = state.accounts.get(tenant)
    if account is None:
        return None, None
    of_app, of_key = account.apps.get(app), state.keys.get(key)
    if of_app is None and of_key is None:
        return _rate(account.requests, now), _rate(account.tokens, now)
    every = [tally for tally in (account, of_app, of_key) if tally is not None]
    return (
        _tightest([_rate(tally.requests, now) for tally in every]),
        _tightest([_rate(tally.tokens, now) for tally in every]),
    )


def _tightest(found: list[RateView | None]) -> RateView | None:
    limits = [rate for rate in found if rate is not None]
    return min(limits, key=lambda rate: (rate.remaining, rate.limit)) if limits else None


def _rate(rate: Rate | None, now: int) -> RateView | None:
    return RateView(rate.per_minute, *rate.now(now)) if rate else None


def budget(state: State, tenant: str, now: int) -> BudgetView | None:
    """What a tenant has spent of its budget, where it has one."""
    account = state.accounts.get(tenant)
    spending = account.spending if account is not None else None
    if spending is None or spending.limit is None:
        return None
    spent = spending.spent(now)
    return BudgetView(
        limit=round_half_up(spending.limit),
        spent=round_half_up(spent),
        held=round_half_up(spending.held),
        soft=spent >= spending.soft,
        until_ns=spending.until,
    )


def due(state: State, lender: str) -> int:
    """What a tenant has lent and needs back: it has work waiting and is under its guarantee."""
    tenant = state.policy.tenants.get(lender)
    if tenant is None or not state.accounts[lender].waiting:
        return 0
    node = state.quotas[tenant.pool].tenants[lender]
    return min(state.loans[tenant.pool].lent(lender), max(0, node.guaranteed - node.use))
