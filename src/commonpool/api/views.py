"""From the core's pictures of itself to what the API says: for whoever implements `Operations`."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from commonpool.access.scope import Scope
from commonpool.api.wire.nodes import Nodes, PlaceQuestion
from commonpool.api.wire.requests import Attempt, LiveRequest
from commonpool.api.wire.status import BudgetStatus, LoanStatus, ModelStatus, PoolStatus, Status, TenantStatus
from commonpool.core import explain, pictures, trial
from commonpool.core.model import Hardware, Outcome, Policy, Pool, Request, UsageRecord, Wait
from commonpool.core.state import State
from commonpool.core.views import BudgetView, LoanView, ModelView, PoolView, TenantView

Waits = Callable[[str], tuple[int | None, int | None]]


def pools(views: Iterable[PoolView], policy: Mapping[str, Pool]) -> tuple[PoolStatus, ...]:
    """The pools of the policy. One that it no longer has is left out."""
    return tuple(
        PoolStatus(view.pool, policy[view.pool].rule, view.capacity, view.in_use, view.unowned, view.scaled)
        for view in views
        if view.pool in policy
    )


def tenants(
    views: Iterable[TenantView], waits: Waits, budgets: Mapping[str, BudgetView], currency: str
) -> tuple[TenantStatus, ...]:
    """The tenants; `waits` gives p50 and p99 of a tenant by name, `budgets` has those that there are."""
    found = []
    for view in views:
        wait_ns_p50, wait_ns_p99 = waits(view.tenant)
        found.append(
            TenantStatus(
                name=view.tenant,
                pool=view.pool,
                guaranteed_milli_gpu=view.guaranteed,
                elastic_cap_milli_gpu=view.elastic_cap,
                in_use_milli_gpu=view.in_use,
                lent_milli_gpu=view.lent,
                borrowed_milli_gpu=view.borrowed,
                due_milli_gpu=view.due,
                waiting=view.waiting,
                running=view.running,
                wait_ns_p50=wait_ns_p50,
                wait_ns_p99=wait_ns_p99,
                granted_until_ns=view.granted_until,
                budget=_budget(budgets[view.tenant], currency) if view.tenant in budgets else None,
            )
        )
    return tuple(found)


def _budget(view: BudgetView, currency: str) -> BudgetStatus:
    return BudgetStatus(view.limit, view.spent, view.held, view.soft, view.until_ns, currency)


def models(views: Iterable[ModelView]) -> tuple[ModelStatus, ...]:
    return tuple(
        ModelStatus(
            name=view.model,
            pool=view.pool,
            residency=view.residency,
            wanted=view.wanted,
            why=view.why,
            ready=view.ready,
            starting=view.starting,
            draining=view.draining,
            waiting=view.waiting,
            bottleneck=view.bottleneck,
            broken=view.broken,
            error=view.error,
            unplaced=view.unplaced,
        )
        for view in views
    )


def loans(
    views: Iterable[LoanView],
    now_ns: int | None = None,
    since: Callable[[str, str], int | None] = lambda _lender, _borrower: None,
) -> tuple[LoanStatus, ...]:
    """One line for each lender and borrower, however much runs on it; by lender, then borrower.

    `since` says when the one began to borrow of the other, which is before the loans that are open, as requests borrow
    one after another. What was expected back before `now_ns` is expected at no time that is known.
    """
    pairs: dict[tuple[str, str], list[LoanView]] = {}
    for view in views:
        pairs.setdefault((view.lender, view.borrower), []).append(view)
    return tuple(
        LoanStatus(
            lender=lender,
            borrower=borrower,
            milli_gpu=sum(view.milli_gpu for view in pair),
            requests=len({view.request_id for view in pair if not view.job}),
            start_ns_min=_first(since(lender, borrower), pair),
            due=any(view.due for view in pair),
            jobs=len({view.request_id for view in pair if view.job}),
            return_ns=_last([view.return_ns for view in pair], now_ns),
        )
        for (lender, borrower), pair in sorted(pairs.items())
    )


def _first(since_ns: int | None, pair: Sequence[LoanView]) -> int:
    first_ns = min(view.start_ns for view in pair)
    return first_ns if since_ns is None else min(first_ns, since_ns)


def _last(returns: Sequence[int | None], now_ns: int | None) -> int | None:
    known = [each for each in returns if each is not None and (now_ns is None or each > now_ns)]
    return max(known) if len(known) == len(returns) else None


def within(status: Status, scope: Scope, policy: Policy) -> Status:
    """What concerns these tenants: theirs, and of the pools and models that they share with others how those stand.

    Who lends to them or borrows from them is named, as on their bills. What runs where is the operators' own, and so
    are warnings, which may speak of anybody.
    """
    own = scope.of(policy.tenants)
    pools = {tenant.pool for tenant in own.values()}
    models = {name for tenant in own.values() for name in tenant.models or policy.deployments}
    return msgspec.structs.replace(
        status,
        pools=tuple(each for each in status.pools if each.name in pools),
        tenants=tuple(each for each in status.tenants if each.name in scope),
        replicas=(),
        models=tuple(each for each in status.models if each.name in models),
        loans=tuple(each for each in status.loans if each.lender in own or each.borrower in own),
        warnings=(),
        said={},
        devices=(),
        jobs=tuple(each for each in status.jobs if each.tenant in scope),
        resources=tuple(each for each in status.resources if each.tenant in own),
    )


def nodes(state: State, now_ns: int) -> Nodes:
    return Nodes(pictures.devices(state), pictures.nodes(state, now_ns))


def place(state: State, question: PlaceQuestion, now_ns: int) -> trial.Trial:
    """What would become of a replica of its model, else of a job of its tenant."""
    if question.model:
        return trial.replica(state, question.model, now_ns)
    hardware = question.hardware or Hardware(milli_gpu=1000)
    return trial.job(state, question.tenant, hardware, {}, question.expected_ns, now_ns)


def live(request: Request, waits: tuple[Wait, ...] | None) -> LiveRequest:
    """A request that waits, for this so far, or that runs (None)."""
    return LiveRequest(
        tenant=request.tenant,
        app=request.app,
        model=request.model,
        tier=request.tier,
        state="running" if waits is None else "waiting",
        wait_ns=sum(wait.ns for wait in waits or ()),
        waits=explain.parts(waits or ()),
        explanation=explain.live(waits),
    )


def attempt(record: UsageRecord) -> Attempt:
    """A record with its wait and its end in words."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    refused = record.outcome is Outcome.REFUSED
    return Attempt(
        **fields | {"waits": explain.parts(record.waits)},
        explanation=explain.attempt(record),
        advice=explain.refusal(record.reason).advice if refused else "",
    )
