"""From what the core holds to what is measured at a scrape."""

from collections.abc import Iterable

from commonpool.core import pictures, views
from commonpool.core.state import State
from commonpool.core.underuse import Underuse
from commonpool.observe.metrics import ModelGauges, PoolGauges, TenantGauges


def tenants(state: State, underused: Iterable[Underuse]) -> tuple[TenantGauges, ...]:
    """Every tenant of the policy; `underused` are those whose guarantees are."""
    jobs = {each.tenant: each for each in pictures.jobs(state)}
    releasable = {each.tenant: each.offered_milli_gpu for each in underused}
    found = []
    for view in views.tenants(state):
        its = jobs.get(view.tenant)
        waiting_jobs = its.waiting if its is not None else 0
        found.append(
            TenantGauges(
                tenant=view.tenant,
                guaranteed=view.guaranteed,
                in_use=view.in_use,
                lent=view.lent,
                borrowed=view.borrowed,
                waiting=view.waiting - waiting_jobs,
                waiting_jobs=waiting_jobs,
                by_jobs=its.running_milli_gpu if its is not None else 0,
                releasable=releasable.get(view.tenant, 0),
            )
        )
    return tuple(found)


def pools(state: State) -> tuple[PoolGauges, ...]:
    """Every pool of the policy."""
    return tuple(
        PoolGauges(each.pool, each.capacity_milli_gpu, each.free_milli_gpu, each.fragmented_milli_gpu)
        for each in pictures.devices(state)
    )


def models(state: State) -> tuple[ModelGauges, ...]:
    """Every model of the policy."""
    return tuple(
        ModelGauges(view.model, view.wanted, view.ready, view.starting, state.sites[view.model].crew.failures)
        for view in views.models(state)
    )
