"""priority: one queue, ordered by the priority that each tenant gives its tiers."""

from commonpool.core.model import PRIORITY_MAX, Policy
from commonpool.simulator.policies.base import Queues, SharingPolicy, as_one, owner_of


def _rules(policy: Policy) -> Policy:
    return as_one(policy, {_tier(priority): priority for priority in range(PRIORITY_MAX + 1)})


def _queues(policy: Policy) -> Queues:
    return {
        (tenant.name, tier): (owner_of(tenant.pool), _tier(priority))
        for tenant in policy.tenants.values()
        for tier, priority in tenant.priority.items()
    }


def _tier(priority: int) -> str:
    return f"priority {priority}"


PRIORITY = SharingPolicy(
    "priority",
    "One queue for everybody, by priority, then arrival; low priorities wait without a bound.",
    _rules,
    _queues,
)
